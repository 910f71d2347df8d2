// One voting group of the oracle: its rows, their scores, and which blocks the rule drops.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/params.h"
#include "attention/reference/reference.h"
#include "attention/tile_plan.h"

namespace longhaul::reference {

/// Where a group lies; its rows are made when it is run.
struct GroupPlace {
  int request;
  int voting_head;                 // query head in prefill, KV head in decode
  int64_t mask_group;              // its index in skip_mask
  int64_t query_begin, query_end;  // query tokens within the request
};

/// Every voting group of a call, requests in order.
std::vector<GroupPlace> list_groups(const AttentionParams& p, const ReferenceOptions& options);
/// Throws InvalidArgument unless the phase can run in the geometry, and Unsupported where the kernels' key splits would
/// cut its tiles.
void check_options(const ReferenceOptions& options);
/// Whether the keys of a request are split as the kernels split them.
bool follows_splits(const ReferenceOptions& options);

struct Row {
  int64_t token;  // among all requests
  int head;       // query head
  KeyRange keys;  // it sees
  double log_lambda;
  double size = 0;  // scale * |q| * the largest |k| it sees
};

/// What a row knows of the tiles it has visited.
struct RowState {
  double max;   // largest score, skipped or not
  double kept;  // ln of the sum of exp over the keys that were kept
};

class Group {
 public:
  Group(const AttentionParams& p, const ReferenceOptions& options, const GroupPlace& place);

  void compute_scores();
  void decide();

  const std::vector<Row>& rows() const { return rows_; }
  int request() const { return request_; }
  int head_kv() const { return head_kv_; }
  const KeyRange& keys() const { return keys_; }  // union over the rows
  double score(size_t row, int64_t key) const { return scores_[row * width_ + (key - keys_.begin)]; }
  /// The row's scores, for the keys of keys() in order; only those of the row's own range hold values.
  const double* scores(size_t row) const { return &scores_[row * width_]; }
  bool skipped(int64_t block) const { return skipped_[block - keys_.begin / options_.geometry.block_keys] != 0; }
  int64_t ambiguous() const { return ambiguous_; }

 private:
  void add_row(int64_t query, int head);
  void score_chunk(int64_t begin, int64_t end, const std::vector<double>& queries, std::vector<double>& keys);
  void decide_part(KeyRange part, std::vector<RowState> states, bool first_runs);
  void visit_tile(KeyRange tile, std::vector<RowState>& states, bool runs);
  bool drops(KeyRange block, const std::vector<RowState>& before, const std::vector<double>& tile_max);
  double largest(size_t row, KeyRange range) const;
  double log_mass(size_t row, KeyRange range) const;

  const AttentionParams& p_;
  const ReferenceOptions& options_;
  int request_, head_kv_;
  std::vector<Row> rows_;
  KeyRange keys_;
  int64_t width_ = 0;
  std::vector<double> scores_;
  std::vector<uint8_t> skipped_;  // by block of keys_
  int64_t ambiguous_ = 0;
};

/// Parts that a group's keys are visited in, none empty; the first one holds the newest tile.
std::vector<KeyRange> key_parts(const AttentionParams& p, const ReferenceOptions& options, const Group& group);

/// a joined with b; NaN once NaN.
inline double join_max(double a, double b) { return b > a || b != b ? b : a; }

KeyRange intersect(KeyRange a, KeyRange b);

}  // namespace longhaul::reference
