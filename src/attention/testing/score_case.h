// A call on one request whose scores are given: d = 64, scale 1, float32. Component 0 of every query is 1 (a test may
// change it) and that of key j is the score, so that whole skip masks can be worked out by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/reference/reference.h"

namespace longhaul::conformance {

class ScoreCase {
 public:
  /// scores[j] holds for every KV head. Value component c of key j is j + 1 for c = 0, otherwise 0.
  ScoreCase(const std::vector<float>& scores, int64_t queries, int heads_q = 1, int heads_kv = 1,
            Phase phase = Phase::prefill);
  ScoreCase(const ScoreCase&) = delete;
  ScoreCase& operator=(const ScoreCase&) = delete;

  float& query(int64_t token, int head, int c = 0) { return q_[(token * heads_q_ + head) * 64 + c]; }
  float& key(int64_t j, int head = 0, int c = 0) { return k_[(j * heads_kv_ + head) * 64 + c]; }
  float& value(int64_t j, int head = 0, int c = 0) { return v_[(j * heads_kv_ + head) * 64 + c]; }
  void set_lambdas(const std::vector<float>& per_head);

  ReferenceResult oracle() const { return reference_attention(args, options); }
  /// Runs the kernel; results below are overwritten.
  void run();
  float out(int64_t token, int head, int c = 0) const { return output[(token * heads_q_ + head) * 64 + c]; }

  AttentionArgs args;
  ReferenceOptions options;
  std::vector<float> output, lse;  // [queries, heads_q, 64], [heads_q, queries]
  std::vector<int64_t> counters;   // [voting_heads, 4]
  std::vector<uint8_t> skip_mask;  // [voting_heads, groups, blocks]

 private:
  int heads_q_, heads_kv_;
  std::vector<float> q_, k_, v_, lambdas_;
  std::vector<int32_t> cu_q_, cu_kv_;
  std::vector<uint8_t> workspace_;
};

/// "0112..." of a skip mask.
std::string mask_text(const std::vector<uint8_t>& mask);

}  // namespace longhaul::conformance
