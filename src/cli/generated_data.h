// Attention inputs with blocks that deserve skipping, for benchmarks: no model needed, any sparsity by choice of
// lambda.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul::cli {

/// What generated inputs look like.
enum class DataKind {
  runs,    ///< heavy runs of keys at random offsets, independent by group of rows and head
  heavy,   ///< the same, with an attention sink (the first 16 keys, values 0) and heavy local keys
  random,  ///< query, key and value standard normal: few scores stand out
};

struct DataShape {
  Phase phase = Phase::prefill;
  int64_t batch = 1, length = 8192, query_tokens = 0;  ///< query tokens a request; 0: all (prefill) or 1 (decode)
  int64_t heads_q = 8, heads_kv = 2, d = 128;
  DType dtype = DType::bf16, kv_dtype = DType::bf16;
  int64_t page_size = 0;  ///< 0: ragged
  uint64_t seed = 1;
  DataKind kind = DataKind::runs;
  int64_t group_rows = 16;   ///< query rows that have a direction in common
  bool heads_share = false;  ///< so have the query heads of a KV head, where they vote together
};

/// Keys come in runs of 16 that begin at random offsets; each run and each group of query rows has a direction of
/// its own, drawn by head, so that the scores of a run and a row group are a draw from N(0, 4^2): a few runs are heavy,
/// independently by row group and head. Values are standard normal.
class GeneratedData {
 public:
  explicit GeneratedData(const DataShape& shape);
  GeneratedData(const GeneratedData&) = delete;
  GeneratedData& operator=(const GeneratedData&) = delete;

  const AttentionArgs& args() const { return args_; }
  const DataShape& shape() const { return shape_; }
  std::string description() const { return description(shape_); }
  static std::string description(const DataShape& shape);

 private:
  TensorView allocate(DType dtype, std::initializer_list<int64_t> dims);
  TensorView own(std::vector<int32_t> values);
  void fill_query();
  void fill_keys_and_values();
  void set_lengths();

  DataShape shape_;
  AttentionArgs args_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<int32_t>> lengths_;
};

/// The lambda at which the kernel skips about `target` of the visible scores, found by two rounds of 32 probes. Throws
/// InvalidArgument where no lambda in [1e-30, 1] comes near.
float lambda_for_sparsity(const AttentionArgs& args, Phase phase, double target);

}  // namespace longhaul::cli
