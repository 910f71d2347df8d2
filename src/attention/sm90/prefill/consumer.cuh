// A warpgroup that computes 64 rows: scores of one tile, P.V of the tile before, softmax, overlapped with the other
// warpgroup, which takes turns at the tensor cores.
//
// Values that steer control flow or address shared memory go through a warp reduction once (uniform()): ptxas then
// keeps them in uniform registers. Without it each wgmma waits for its descriptor to be moved there, and a branch
// around a wgmma makes ptxas serialise all of them.
#pragma once

#include "attention/sm90/prefill/config.h"
#include "attention/sm90/prefill/kernel_params.h"
#include "attention/sm90/prefill/report.cuh"
#include "attention/sm90/prefill/rows.cuh"
#include "attention/sm90/prefill/vote.cuh"
#include "ptx/cluster.h"
#include "ptx/sync.h"
#include "ptx/wgmma.h"

namespace longhaul::sm90 {

__device__ __forceinline__ int uniform(int x) { return __reduce_max_sync(0xffffffff, x); }
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __reduce_or_sync(0xffffffff, x); }

template <class Config>
struct Consumer {
  static constexpr int kScores = Config::kTileKeys / 2, kOutputs = Config::kHeadSize / 2;
  static constexpr int kHalf = Config::kBlocks / 2;
  static constexpr uint32_t kAll = (1U << Config::kBlocks) - 1;
  using Element = typename Config::Element;
  using ScoreProduct = ptx::Wgmma<Element, Config::kTileKeys>;
  using ValueProduct = ptx::Wgmma<Element, Config::kHeadSize>;

  typename Config::Shared& shared;
  const PrefillKernelParams& p;
  const int group, warp, lane;    // warpgroup in the block, warp in it
  uint32_t items = 0, tiles = 0;  // finished so far

  // Of the item in work.
  float o[kOutputs];
  uint32_t probabilities[kScores / 2];
  RowState row;

  __device__ Consumer(typename Config::Shared& s, const PrefillKernelParams& params, int thread)
      : shared(s), p(params), group(uniform(thread / 128)), warp(thread % 128 / 32), lane(thread % 32) {}

  __device__ __forceinline__ int first_row(const WorkItem& w) const {
    return w.position + group * 64 + 16 * warp + lane / 4;
  }
  __device__ __forceinline__ int pair() const { return 2 * (lane % 4); }
  __device__ __forceinline__ void arrive(ptx::Mbarrier& barrier) {
    if (lane == 0 && warp == 0) ptx::mbarrier_arrive(&barrier);
  }
  /// Gives a stage back to the producers of all blocks of the cluster, which fill it together.
  __device__ __forceinline__ void release(ptx::Mbarrier& barrier) {
    if (warp == 0 && lane < p.ranks) ptx::mbarrier_arrive_at(&barrier, lane);
  }
  static __device__ __forceinline__ uint32_t stage(uint32_t tile) { return tile % Config::kStages; }
  static __device__ __forceinline__ uint32_t parity(uint32_t tile) { return tile / Config::kStages & 1; }

  /// s = Q K^T of the tile in this stage; the caller waits for it.
  __device__ __forceinline__ void start_scores(float (&s)[kScores], uint32_t stage) {
    const uint64_t a = ptx::matrix_descriptor(shared.query + group * 64 * 128, 0);
    const uint64_t b = ptx::matrix_descriptor(shared.key[stage], 0);
#pragma unroll
    for (int k = 0; k < Config::kHeadSize / 16; ++k) {
      const uint32_t column = k % 4 * 32;
      ScoreProduct::shared(s, ptx::advance(a, k / 4 * Config::kQueryPanelBytes + column),
                           ptx::advance(b, k / 4 * Config::kKeyPanelBytes + column), k > 0);
    }
    ptx::wgmma_commit();
  }

  /// Starts o += P V for the blocks of half `half` in `keep` from block k on, and those already `chosen`. Each set of
  /// kept blocks has straight code of its own and is one group: products in branches of their own would each be a
  /// group, and the wait for the scores would wait for them, too.
  template <int half, int k, uint32_t chosen>
  __device__ __forceinline__ void start_half(uint32_t keep, uint64_t b) {
    if constexpr (k < kHalf) {
      if (keep >> (kHalf * half + k) & 1) {
        start_half<half, k + 1, chosen | 1U << k>(keep, b);
      } else {
        start_half<half, k + 1, chosen>(keep, b);
      }
    } else {
      if constexpr (chosen != 0) ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        constexpr int kFirst = kHalf * half;
        if (chosen >> i & 1)
          ValueProduct::registers(o, probabilities + 4 * (kFirst + i), ptx::advance(b, (kFirst + i) * 16 * 128));
      }
      ptx::wgmma_commit();
    }
  }

  /// o += P V of the kept blocks of the tile in this stage, in two groups.
  __device__ __forceinline__ void start_values(uint32_t keep, uint32_t stage) {
    const uint64_t b = ptx::matrix_descriptor(shared.value[stage], Config::kKeyPanelBytes);
    if constexpr (Config::kSkip) {
      start_half<0, 0, 0>(keep, b);
      start_half<1, 0, 0>(keep, b);
    } else {
      start_half<0, kHalf, (1 << kHalf) - 1>(keep, b);
      start_half<1, kHalf, (1 << kHalf) - 1>(keep, b);
    }
  }

  /// The same for the last tile, which no softmax overlaps: a branch a block.
  __device__ __forceinline__ void start_last_values(uint32_t keep, uint32_t stage) {
    const uint64_t b = ptx::matrix_descriptor(shared.value[stage], Config::kKeyPanelBytes);
#pragma unroll
    for (int k = 0; k < Config::kBlocks; ++k)
      if (!Config::kSkip || keep >> k & 1)
        ValueProduct::registers(o, probabilities + 4 * k, ptx::advance(b, k * 16 * 128));
    ptx::wgmma_commit();
  }

  /// Zeroes the value rows past the request's end, which hold what the cache happened to hold: 0 * NaN is NaN.
  __device__ __forceinline__ void clear_values_past_end(int from, uint32_t stage) {
    for (int i = warp * 32 + lane; i < (Config::kTileKeys - from) * 8 * Config::kPanels; i += 128) {
      const int panel = i % Config::kPanels, chunk = i / Config::kPanels;
      *reinterpret_cast<uint4*>(shared.value[stage] + panel * Config::kKeyPanelBytes + from * 128 + chunk * 16) =
          uint4{};
    }
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kVoteBarrier + group, 128);
  }

  /// Exponentials of the blocks in `keep` in place, their sums into row.l. `pack`: their probabilities, too.
  template <bool pack>
  __device__ __forceinline__ void exponentials(float (&s)[kScores], uint32_t keep, const float (&shift)[2]) {
    const float scale_log2 = p.scale_log2;
    float sums[2][2] = {};
    const auto block = [&](int b) {
#pragma unroll
      for (int i = 8 * b; i < 8 * b + 8; ++i) {
        const int r = i / 2 % 2;
        s[i] = ptx::exp2_approximate(fmaf(s[i], scale_log2, -shift[r]));
        sums[r][i % 2] += s[i];
      }
      if constexpr (pack) round_block(s, b);
    };
    if (keep == kAll) {
#pragma unroll
      for (int b = 0; b < Config::kBlocks; ++b) block(b);
    } else {
      // Two levels, because a branch takes a dozen cycles and most blocks of most tiles are dropped.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if ((keep >> (kHalf * half) & ((1 << kHalf) - 1)) == 0) continue;
#pragma unroll
        for (int b = kHalf * half; b < kHalf * half + kHalf; ++b)
          if (keep >> b & 1) block(b);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) row.l[r] = __fadd_rn(row.l[r], sums[r][0] + sums[r][1]);
  }

  __device__ __forceinline__ void round_block(const float (&s)[kScores], int b) {
#pragma unroll
    for (int i = 4 * b; i < 4 * b + 4; ++i) probabilities[i] = ptx::pack<Element>(s[2 * i], s[2 * i + 1]);
  }

  /// Scales o where a maximum of the warp grew.
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if (!__any_sync(0xffffffff, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i / 2 % 2];
  }

  /// Rule sum: what a block's maximum is compared with is the logarithm of the mass kept so far and of the tile's
  /// maximum.
  __device__ __forceinline__ void sum_reference(const float (&tile_max)[2], const float (&shift)[2],
                                                float (&reference)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float mass = quad_sum(row.l[r]) + ptx::exp2_approximate(tile_max[r] * p.scale_log2 - shift[r]);
      reference[r] = (shift[r] + ptx::log2_approximate(mass)) * p.raw_per_log2;
    }
  }

  /// Joins a tile's scores into the running maxima. Returns the blocks that the warp would drop (uniform).
  /// `factor`: what sums so far shrink by; `shift`: what the tile's exponents shrink by.
  __device__ __forceinline__ uint32_t meet(float (&s)[kScores], const WorkItem& w, int first_key, bool masked,
                                           bool voting, float log2_lambda_raw, float (&factor)[2], float (&shift)[2]) {
    const float scale_log2 = p.scale_log2;
    if (p.cap > 0) cap_scores(s, p.cap, p.cap_scale);
    uint32_t infinite = 0;
    if (masked) {
      asm volatile("" ::: "memory");  // or the item's fields are read for every tile
      const RowView visible(p, w, first_row(w));
      infinite = mask_scores(s, visible, first_key, pair());
    }
    float block_max[Config::kBlocks][2], tile_max[2];
#pragma unroll
    for (int b = 0; b < Config::kBlocks; ++b)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        block_max[b][r] = ptx::max_or_nan(ptx::max_or_nan(s[8 * b + 2 * r], s[8 * b + 2 * r + 1]),
                                          ptx::max_or_nan(s[8 * b + 4 + 2 * r], s[8 * b + 5 + 2 * r]));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_max[r] = block_max[0][r];
#pragma unroll
      for (int b = 1; b < Config::kBlocks; ++b) tile_max[r] = ptx::max_or_nan(tile_max[r], block_max[b][r]);
    }
    quad_max(tile_max);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float m = ptx::max_or_nan(row.m[r], tile_max[r]);
      const float finite_m = m == -INFINITY ? 0 : m;
      factor[r] = ptx::exp2_approximate((row.m[r] - finite_m) * scale_log2);
      shift[r] = finite_m * scale_log2;
      row.m[r] = m;
      row.l[r] = __fmul_rn(row.l[r], factor[r]);  // not fused with the sum below: dense and skipping kernels must agree
    }
    if (!Config::kSkip || !voting) return 0;
    float reference[2] = {row.m[0], row.m[1]};
    if (p.rule == SkipRule::sum) sum_reference(tile_max, shift, reference);
    const float below[2] = {drop_below(reference[0], log2_lambda_raw), drop_below(reference[1], log2_lambda_raw)};
    return masked ? warp_vote<true>(block_max, below, infinite) : warp_vote<false>(block_max, below, 0);
  }

  __device__ __forceinline__ void take_turn() { ptx::named_barrier_sync(kTurnBarrier + group, 256); }
  __device__ __forceinline__ void give_turn() {
    ptx::named_barrier_arrive(kTurnBarrier + (group + 1) % Config::kConsumers, 256);
  }

  __device__ __forceinline__ void wait(ptx::Mbarrier& barrier, uint32_t parity) {
    while (!__any_sync(0xffffffff, ptx::mbarrier_try_wait(&barrier, parity))) {
    }
  }

  __device__ __forceinline__ void report(const WorkItem& w, int first_key, bool masked, uint32_t keep) {
    if (Config::kSkip && (p.counters != nullptr || p.skip_mask != nullptr))
      report_tile(shared.visible_tiles[group], shared.skipped_blocks[group], p, w, group, 32 * warp + lane, first_key,
                  masked, keep);
  }

  /// All tiles of an item. Tile i is scored while the values of tile i - 1 are multiplied.
  __device__ __forceinline__ void compute(const WorkItem& w) {
    const int count = uniform(w.tiles);
    float s[kScores], factor[2], shift[2];
    const float log2_lambda_raw = Config::kSkip ? log2_lambda(p, w) * p.raw_per_log2 : 0;
    const bool voting = Config::kSkip && __any_sync(0xffffffff, log2_lambda_raw > -INFINITY);
    const FullView view(p, w, group);
    const int full_begin = uniform(view.begin), full_end = uniform(view.end);
    int first_key = uniform(w.newest_tile) * Config::kTileKeys;
    const auto masked = [&](int key) { return key < full_begin || key + Config::kTileKeys > full_end; };

    wait(shared.query_full, items & 1);
    if (count == 0) {
      ptx::named_barrier_sync(kVoteBarrier + group, 128);  // all four warps have seen the query: it may be replaced
      return arrive(shared.query_empty);
    }
    wait(shared.key_full[stage(tiles)], parity(tiles));
    ptx::pin(s);
    ptx::wgmma_fence();
    start_scores(s, stage(tiles));
    ptx::wgmma_wait<0>();
    ptx::pin(s);
    release(shared.key_empty[stage(tiles)]);
    meet(s, w, first_key, masked(first_key), false, log2_lambda_raw, factor, shift);
    exponentials<true>(s, kAll, shift);
    uint32_t keep = kAll;  // blocks of the tile before
    if constexpr (Config::kSkip) report(w, first_key, masked(first_key), keep);
    const int past_end = uniform(w.kv_length) - first_key;
    if (past_end < Config::kTileKeys) {
      wait(shared.value_full[stage(tiles)], parity(tiles));
      clear_values_past_end(past_end, stage(tiles));
    }

#pragma unroll 1
    for (int i = 1; i < count; ++i) {
      const uint32_t newer = tiles, newer_stage = stage(newer), this_stage = stage(newer + 1);
      ++tiles;
      wait(shared.key_full[this_stage], parity(tiles));
      take_turn();
      first_key -= Config::kTileKeys;
      ptx::pin(s);
      ptx::pin(o);
      ptx::pin(probabilities);
      ptx::wgmma_fence();
      start_scores(s, this_stage);
      if (!Config::kSkip || keep != 0) wait(shared.value_full[newer_stage], parity(newer));
      start_values(keep, newer_stage);
      give_turn();
      ptx::wgmma_wait<2>();
      ptx::pin(s);
      release(shared.key_empty[this_stage]);
      const uint32_t drop = meet(s, w, first_key, masked(first_key), voting, log2_lambda_raw, factor, shift);
      if (voting) put_vote(drop);
      if (!Config::kSkip || drop == 0) {
        exponentials<false>(s, kAll, shift);
        // ptxas hoists the wait to the start of its basic block, before the softmax that should overlap P.V. A branch
        // that depends on every exponential, never taken, starts a new block.
        if (__any_sync(0xffffffff, row.l[0] + row.l[1] < 0)) __trap();
        finish_values(keep, newer, factor);
#pragma unroll
        for (int b = 0; b < Config::kBlocks; ++b) round_block(s, b);
      } else {
        finish_values(keep, newer, factor);
        exponentials<true>(s, ~drop & kAll, shift);
      }
      if (voting) keep = settle(s, drop, shift);
      if constexpr (Config::kSkip) report(w, first_key, masked(first_key), keep);
    }
    arrive(shared.query_empty);

    if (!Config::kSkip || keep != 0) wait(shared.value_full[stage(tiles)], parity(tiles));
    ptx::pin(o);
    ptx::pin(probabilities);
    ptx::wgmma_fence();
    start_last_values(keep, stage(tiles));
    finish_values(keep, tiles, {1, 1});
    ++tiles;
  }

  __device__ __forceinline__ void put_vote(uint32_t drop) {
    if (lane == 0) shared.votes[group][warp] = static_cast<uint8_t>(drop);
  }

  /// Joins the votes of the four warps. Blocks that this warp would have dropped but
  /// another keeps get their exponentials now. Returns the blocks to keep.
  __device__ __forceinline__ uint32_t settle(float (&s)[kScores], uint32_t drop, const float (&shift)[2]) {
    ptx::named_barrier_sync(kVoteBarrier + group, 128);
    const uint32_t joint = uniform(joint_vote(shared.votes[group]));
    if (drop != joint) exponentials<true>(s, drop & ~joint, shift);
    return ~joint & kAll;
  }

  /// Waits for P.V of the tile that was number `tile`, gives its stage back and scales o for the newer maxima.
  __device__ __forceinline__ void finish_values(uint32_t keep, uint32_t tile, const float (&factor)[2]) {
    ptx::wgmma_wait<0>();
    ptx::pin(o);
    ptx::pin(probabilities);
    // A dropped tile's values were not waited for; by now they are here, and only then may the stage be filled anew.
    // Only the warp that gives it back waits: another one might come so late that the stage is full a second time, and
    // wait for a third. It cannot run ahead either, since the warps meet before any of them needs the stage again.
    if (Config::kSkip && keep == 0 && warp == 0) wait(shared.value_full[stage(tile)], parity(tile));
    release(shared.value_empty[stage(tile)]);
    rescale(factor);
  }

  __device__ __forceinline__ void finish(const WorkItem& w) {
    constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;
    const RowView visible(p, w, first_row(w));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int position = first_row(w) + 8 * r;
      float sum = quad_sum(row.l[r]), shift = row.m[r] * p.scale_log2, factor = 1;
      // The row sees nothing, or nothing but scores of -inf.
      const bool empty = visible.count[r] == 0 || sum == 0;
      if (p.sinks != nullptr && !empty) {
        const float sink = p.sinks[w.head] * kLog2e, joint = fmaxf(shift, sink);
        factor = ptx::exp2_approximate(shift - joint);
        sum = sum * factor + ptx::exp2_approximate(sink - joint);
        shift = joint;
      }
      const float inverse = empty ? 0 : factor / sum;
      if (position < w.first_position || position >= w.kv_length) continue;
      const int64_t token = w.q_token + position;
      if (p.lse != nullptr && lane % 4 == 0)
        p.lse[w.head * p.lse_head + token * p.lse_token] = empty ? -INFINITY : (shift + log2f(sum)) * kLn2;
      Element* to = static_cast<Element*>(p.out) + token * p.out_token + w.head * p.out_head + pair();
#pragma unroll
      for (int j = 0; j < kOutputs / 4; ++j)
        *reinterpret_cast<uint32_t*>(to + 8 * j) =
            ptx::pack<Element>(o[4 * j + 2 * r] * inverse, o[4 * j + 2 * r + 1] * inverse);
    }
  }

  __device__ __forceinline__ void run() {
    if (group == Config::kConsumers - 1) give_turn();  // group 0 goes first
    while (true) {
      const uint32_t slot = items % 2;
      wait(shared.item_full[slot], items / 2 & 1);
      const WorkItem& w = shared.items[slot];
      if (uniform(w.head) < 0) break;
      row = RowState{};
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) o[i] = 0;
      compute(w);
      finish(w);
      if (Config::kSkip && p.counters != nullptr)
        report_item(shared.visible_tiles[group], shared.skipped_blocks[group], p, w, 32 * warp + lane);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.item_empty[slot]);
      ++items;
    }
    if (group == 0) take_turn();  // the one that the last group gave
  }
};

}  // namespace longhaul::sm90
