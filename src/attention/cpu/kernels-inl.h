// The kernel table of one instruction set: picks the instantiation of decode for the dtype.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

size_t decode_scratch_bytes(const AttentionParams& p) {
  int64_t tokens = 0;
  for (int b = 0; b < p.batch; ++b) tokens = p.q_length(b) > tokens ? p.q_length(b) : tokens;
  return DecodeRun<float>::scratch_bytes(p, static_cast<int>(tokens) * p.group);  // the same for every element type
}

template <class T>
void decode_run(const AttentionParams& p, const DecodeItem& item, void* scratch) {
  static_assert(sizeof(DecodeHead<T>) == sizeof(DecodeHead<float>));
  DecodeRun<T>(p, item, static_cast<char*>(scratch)).run();
}

void decode_item(const AttentionParams& p, const DecodeItem& item, void* scratch) {
  switch (p.kv_dtype) {
    case DType::f32:
      return decode_run<float>(p, item, scratch);
    case DType::f16:
      return decode_run<F16>(p, item, scratch);
    case DType::bf16:
      return decode_run<Bf16>(p, item, scratch);
    default:
      return decode_run<F8E4M3>(p, item, scratch);
  }
}

void decode_merge(const AttentionParams& p, int request, int head_kv, const float* partials, int parts, void* scratch) {
  const int rows = static_cast<int>(p.q_length(request)) * p.group;
  const int64_t row_floats = p.dv + 2, part_floats = rows * row_floats;
  float* output = static_cast<float*>(scratch);
  for (int i = 0; i < rows; ++i) {
    const float* row = partials + i * row_floats;
    float max = -kInfinity, sum = 0;
    for (int part = 0; part < parts; ++part) {
      const float m = row[part * part_floats + p.dv];
      max = m > max ? m : max;
    }
    for (int c = 0; c < p.dv; ++c) output[c] = 0;
    for (int part = 0; part < parts; ++part) {
      const float* from = row + part * part_floats;
      // A part without weight has a maximum that may be no base for a difference, but its output still counts: it is 0,
      // or NaN where a weight of 0 met a value that is not finite.
      const bool weightless = from[p.dv + 1] == 0;
      const float factor = weightless ? 0.0F : LONGHAUL_MUTATE(8, std::exp2(from[p.dv] - max), 1.0F);
      sum += from[p.dv + 1] * factor;
      for (int c = 0; c < p.dv; ++c) output[c] += from[c] * factor;
    }
    write_result(p, p.cu_q[request] + i / p.group, head_kv * p.group + i % p.group, output, max, sum);
  }
}

int prefill_positions(const AttentionParams& p) { return prefill_item_positions(p.group, kPrefillItemRows); }

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END

#define LONGHAUL_KERNEL_TABLE                                                                           \
  {LONGHAUL_ISA::prefill_positions,    LONGHAUL_ISA::prefill_scratch_bytes, LONGHAUL_ISA::prefill_item, \
   LONGHAUL_ISA::decode_scratch_bytes, LONGHAUL_ISA::decode_item,           LONGHAUL_ISA::decode_merge}
