// Joins what several warps or blocks have of the same rows, and writes it: a result, or a part for the merge kernel.
#pragma once

#include "attention/sm90/decode/rows.cuh"

namespace longhaul::sm90 {

/// Some parts of a row joined; four columns a lane.
struct JoinedRow {
  float base = -INFINITY;  // raw units; sums and outputs are relative to it
  float sum = 0;
  float4 out{};

  __device__ __forceinline__ void add(float factor, float part_sum, const float4& part) {
    sum = fmaf(part_sum, factor, sum);
    out.x = fmaf(part.x, factor, out.x);
    out.y = fmaf(part.y, factor, out.y);
    out.z = fmaf(part.z, factor, out.z);
    out.w = fmaf(part.w, factor, out.w);
  }
};

/// Of a part's sums, so that they are relative to the joint base.
__device__ __forceinline__ float part_factor(const DecodeKernelParams& p, float part_base, float base) {
  return ptx::exp2_approximate((part_base - finite(base)) * p.scale_log2);
}

/// Divides by the sum, the sink included, and writes output and log-sum-exp.
template <class Element>
__device__ inline void write_row(const DecodeKernelParams& p, const DecodeRow& row, const JoinedRow& joined, int column,
                                 int head_size) {
  constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;
  float sum = joined.sum, shift = joined.base * p.scale_log2, factor = 1;
  // The row sees nothing, or nothing but scores of -inf.
  const bool empty = row.begin >= row.end || sum == 0;
  if (p.sinks != nullptr && !empty) {
    const float sink = p.sinks[row.head] * kLog2e, joint = fmaxf(shift, sink);
    factor = ptx::exp2_approximate(shift - joint);
    sum = sum * factor + ptx::exp2_approximate(sink - joint);
    shift = joint;
  }
  const float inverse = empty ? 0 : factor / sum;
  if (p.lse != nullptr && column == 0)
    p.lse[row.head * p.lse_head + row.token * p.lse_token] = empty ? -INFINITY : (shift + log2f(sum)) * kLn2;
  if (column >= head_size) return;
  auto* to = static_cast<Element*>(p.out) + row.token * p.out_token + row.head * p.out_head + column;
  *reinterpret_cast<uint2*>(to) = uint2{ptx::pack<Element>(joined.out.x * inverse, joined.out.y * inverse),
                                        ptx::pack<Element>(joined.out.z * inverse, joined.out.w * inverse)};
}

/// What the warps of a block have of a segment: they lay it down, then each joins and writes every fourth row.
template <class Config>
__device__ inline void write_segment(typename Config::Shared& shared, const DecodeKernelParams& p, const Segment& s,
                                     const Role& role, int warp, int lane, const float* o, const RowState& state) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    const float sum = quad_sum(state.l[r]);
    if (lane % 4 == 0) {
      shared.merge_base[warp][row] = state.base[r];
      shared.merge_sum[warp][row] = sum;
    }
#pragma unroll
    for (int j = 0; j < Config::kHeadSize / 8; ++j)
      *reinterpret_cast<float2*>(&shared.merge[warp][row][8 * j + 2 * (lane % 4)]) =
          float2{o[4 * j + 2 * r], o[4 * j + 2 * r + 1]};
  }
  __syncthreads();
  const int column = 4 * lane;
  for (int row = warp; row < s.rows; row += kDecodeWarps) {
    const int first = row / 16, in_tile = row % 16;  // the warps first, first + row_warps, ... have parts of it
    JoinedRow joined;
    for (int part = 0; part < role.parts; ++part)
      joined.base = ptx::max_or_nan(joined.base, shared.merge_base[part * role.row_warps + first][in_tile]);
    for (int part = 0; part < role.parts; ++part) {
      const int of = part * role.row_warps + first;
      float4 values{};
      if (column < Config::kHeadSize) values = *reinterpret_cast<float4*>(&shared.merge[of][in_tile][column]);
      joined.add(part_factor(p, shared.merge_base[of][in_tile], joined.base), shared.merge_sum[of][in_tile], values);
    }
    if (s.slot < 0) {
      write_row<typename Config::Element>(p, decode_row(p, s, row), joined, column, Config::kHeadSize);
    } else {
      const int64_t at = s.slot * p.part_rows + row;
      if (lane == 0) p.part_sums[at] = {joined.base, joined.sum};
      if (column < Config::kHeadSize)
        *reinterpret_cast<float4*>(p.part_out + at * Config::kHeadSize + column) = joined.out;
    }
  }
  __syncthreads();
}

}  // namespace longhaul::sm90
