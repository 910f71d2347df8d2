// What prefill and decode share: reading query, key and value rows as fp32, counters, writing one output row.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr int kTile = 64;   // keys of a tile
inline constexpr int kBlock = 16;  // keys of a block
inline constexpr int kBlocks = kTile / kBlock;
static_assert(kTile == kCpuPrefill.tile_keys && kTile == kCpuDecode.tile_keys);
static_assert(kBlock == kCpuPrefill.block_keys && kBlock == kCpuDecode.block_keys);

/// What a call does beside the dense result.
enum class Mode {
  dense,
  skip,
  probe,  // dense, and counts what each of many λ would have skipped
};

/// The mode for the query heads of one KV head. λ = 0 can skip nothing, so it takes the dense path: same bits, no cost.
LONGHAUL_INLINE Mode mode_of(const AttentionParams& p, int request, int head_kv) {
  if (p.probes > 0) return Mode::probe;
  if (p.lambda_kind == Lambda::Kind::none) return Mode::dense;
  for (int h = 0; h < p.group; ++h) {
    if (p.lambda_of(request, head_kv * p.group + h) > 0) return Mode::skip;
  }
  return Mode::dense;
}

/// log2 of a λ that the host has checked; -inf for 0.
LONGHAUL_INLINE float log2_lambda(float lambda) {
  return lambda > 0 ? static_cast<float>(std::log2(double{lambda})) : -kInfinity;
}

template <class T>
LONGHAUL_INLINE void read_elements(const T* from, int d, float* to) {
  for (int c = 0; c < d; c += kLanes) store(to + c, load(from + c));
}

/// One row of d elements as fp32.
LONGHAUL_INLINE void read_row(const void* data, DType dtype, int64_t offset, int d, float* to) {
  switch (dtype) {
    case DType::f32:
      return read_elements(static_cast<const float*>(data) + offset, d, to);
    case DType::f16:
      return read_elements(static_cast<const F16*>(data) + offset, d, to);
    case DType::bf16:
      return read_elements(static_cast<const Bf16*>(data) + offset, d, to);
    default:
      return read_elements(static_cast<const F8E4M3*>(data) + offset, d, to);
  }
}

/// bf16 bits of the nearest value, written so that compilers vectorise it (bf16_from_float is a call).
LONGHAUL_INLINE uint16_t nearest_bf16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
}

LONGHAUL_INLINE void write_row(const float* from, int d, void* data, DType dtype, int64_t offset) {
  if (dtype == DType::f32) {
    __builtin_memcpy(static_cast<float*>(data) + offset, from, sizeof(float) * d);
  } else if (dtype == DType::bf16) {
    uint16_t* to = static_cast<uint16_t*>(data) + offset;
    for (int c = 0; c < d; ++c) to[c] = nearest_bf16(from[c]);
  } else {
    for (int c = 0; c < d; ++c) store_from_float(data, dtype, offset + c, from[c]);
  }
}

/// How a row's accumulators become output and log-sum-exp.
struct RowEnd {
  bool empty;    // no weight at all: the output is 0
  float factor;  // of the accumulated output
  float lse;
};

/// `max` in log2 units, `sum` relative to 2^max. The sink joins the sum only.
LONGHAUL_INLINE RowEnd end_row(const AttentionParams& p, int head, float max, float sum) {
  constexpr float kLn2 = 0.69314718055994530942F;
  if (sum == 0) return {true, 0.0F, -kInfinity};
  if (LONGHAUL_MUTATE(5, p.sinks == nullptr, true)) return {false, 1.0F / sum, (max + std::log2(sum)) * kLn2};
  const float sink = p.sinks[head] * kLog2E;
  const float top = sink > max ? sink : max;
  const float scale = std::exp2(max - top);
  const float total = sum * scale + std::exp2(sink - top);
  return {false, scale / total, (top + std::log2(total)) * kLn2};
}

/// Output and log-sum-exp of one row; `output` is scaled in place.
LONGHAUL_INLINE void write_result(const AttentionParams& p, int64_t token, int head, float* output, float max,
                                  float sum) {
  const RowEnd end = end_row(p, head, max, sum);
  const float factor = end.factor * p.v_scale_of(head / p.group);
  for (int c = 0; c < p.dv; ++c) output[c] = end.empty ? 0.0F : output[c] * factor;
  write_row(output, p.dv, p.out, p.out_dtype, token * p.out_token + head * p.out_head);
  if (p.lse != nullptr) p.lse[head * p.lse_head + token * p.lse_token] = end.lse;
}

/// Workers add to the caller's counters; sums of integers do not depend on the order.
LONGHAUL_INLINE void add_counter(int64_t* counter, int64_t amount) {
  if (amount != 0) __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
