#include "attention/testing/score_case.h"

#include "attention/testing/workspace.h"

namespace longhaul::conformance {

ScoreCase::ScoreCase(const std::vector<float>& scores, int64_t queries, int heads_q, int heads_kv, Phase phase)
    : heads_q_(heads_q),
      heads_kv_(heads_kv),
      q_(queries * heads_q * 64),
      k_(scores.size() * heads_kv * 64),
      v_(k_.size()) {
  const auto keys = static_cast<int64_t>(scores.size());
  for (int64_t i = 0; i < queries; ++i)
    for (int h = 0; h < heads_q; ++h) query(i, h) = 1;
  for (int64_t j = 0; j < keys; ++j)
    for (int h = 0; h < heads_kv; ++h) {
      key(j, h) = scores[j];
      value(j, h) = static_cast<float>(j + 1);
    }
  cu_q_ = {0, static_cast<int32_t>(queries)};
  cu_kv_ = {0, static_cast<int32_t>(keys)};
  output.assign(q_.size(), 0);
  lse.assign(queries * heads_q, 0);
  args.query = TensorView(q_.data(), DType::f32, {queries, heads_q, 64});
  args.key = TensorView(k_.data(), DType::f32, {keys, heads_kv, 64});
  args.value = TensorView(v_.data(), DType::f32, {keys, heads_kv, 64});
  args.output = TensorView(output.data(), DType::f32, {queries, heads_q, 64});
  args.lse = TensorView(lse.data(), DType::f32, {heads_q, queries});
  args.cu_seqlens_q = TensorView(cu_q_.data(), DType::i32, {2});
  args.cu_seqlens_kv = TensorView(cu_kv_.data(), DType::i32, {2});
  args.softmax_scale = 1;
  options.phase = phase;
  options.geometry = attention_geometry(args, phase);
}

void ScoreCase::set_lambdas(const std::vector<float>& per_head) {
  lambdas_ = per_head;
  args.lambda = Lambda::per_head(TensorView(lambdas_.data(), DType::f32, {1, heads_q_}));
}

void ScoreCase::run() {
  const int64_t voting_heads = options.phase == Phase::decode ? heads_kv_ : heads_q_;
  counters.assign(voting_heads * 4, 0);
  args.counters = TensorView(counters.data(), DType::i64, {voting_heads, 4});
  args.skip_mask = {};
  const SkipMaskShape shape = skip_mask_shape(args, options.phase);
  skip_mask.assign(shape.voting_heads * shape.groups * shape.blocks, 7);  // must be overwritten
  args.skip_mask = TensorView(skip_mask.data(), DType::u8, {shape.voting_heads, shape.groups, shape.blocks});
  give_workspace(args, options.phase, workspace_);
  attention(args, options.phase);
}

std::string mask_text(const std::vector<uint8_t>& mask) {
  std::string text;
  for (uint8_t m : mask) text += static_cast<char>('0' + m);
  return text;
}

}  // namespace longhaul::conformance
