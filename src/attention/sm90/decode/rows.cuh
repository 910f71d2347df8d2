// The two rows that a lane of a decode warp holds, what they see, and when they would drop a block.
#pragma once

#include "attention/sm90/decode/segments.cuh"
#include "attention/sm90/scores.cuh"

namespace longhaul::sm90 {

/// Row r of a segment: query token r / group, query head r % group of the KV head.
struct DecodeRow {
  int token, head;  // of the batch, of all heads
  int begin, end;   // keys it sees; empty where there is no such row
};

__device__ inline DecodeRow decode_row(const DecodeKernelParams& p, const Segment& s, int r) {
  const int token = r / p.group, position = s.shape.first_position() + token;
  if (r >= s.rows) return {0, 0, 0, 0};
  const int begin = p.window_left < 0 || position <= p.window_left ? 0 : position - static_cast<int>(p.window_left);
  const int end = p.causal ? min(position + 1, s.shape.kv_length) : s.shape.kv_length;
  return {s.shape.q_begin + token, s.head * p.group + r % p.group, begin, max(begin, end)};
}

/// Keys that all rows of a segment see.
struct CommonView {
  int begin = 0, end = 0;
  __device__ bool whole(int first_key) const { return first_key >= begin && first_key + kDecodeTileKeys <= end; }
};
__device__ inline CommonView common_view(const DecodeKernelParams& p, const Segment& s) {
  return {decode_row(p, s, s.rows - 1).begin, decode_row(p, s, 0).end};
}

/// lambda of a row as an exponent of 2, in raw units; -inf for 0.
__device__ inline float log2_lambda_raw(const DecodeKernelParams& p, const Segment& s, int head) {
  float lambda = p.lambdas == nullptr ? p.lambda : p.lambdas[s.request * p.lambda_request + head * p.lambda_head];
  if (!(lambda >= 0 && lambda <= 1)) {
    set_status(p, kSm90LambdaOutOfRange);
    lambda = 0;
  }
  return lambda > 0 ? log2f(lambda) * p.raw_per_log2 : -INFINITY;
}

/// What a row's blocks are compared with besides its own part: the newest tile's maximum (raw units) and mass (as an
/// exponent of 2), where the part does not begin with it.
struct Seed {
  float m[2] = {-INFINITY, -INFINITY};
  float mass[2] = {-INFINITY, -INFINITY};
};

/// Hides what a row does not see. Returns the blocks (bits) that hold a visible score of -inf: they must be kept.
template <int n>
__device__ __forceinline__ uint32_t mask_scores(float (&s)[n], const DecodeRow (&rows)[2], int first_key, int pair) {
  uint32_t keep = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int begin = rows[r].begin - first_key - pair, count = rows[r].end - rows[r].begin;
#pragma unroll
    for (int j = 0; j < n / 4; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = s[4 * j + 2 * r + c];
        const bool seen = static_cast<unsigned>(8 * j + c - begin) < static_cast<unsigned>(count);
        if (seen && score == -INFINITY) keep |= 1U << (j / 2);
        score = seen ? score : -INFINITY;
      }
    }
  }
  return keep;
}

}  // namespace longhaul::sm90
