// A warpgroup that computes 64 rows, tile by tile: scores, softmax, P.V, one after the other. What it leaves idle the
// two other warpgroups use: while one is in its softmax, the tensor cores work for them.
#pragma once

#include "attention/sm90/prefill/config.h"
#include "attention/sm90/prefill/kernel_params.h"
#include "attention/sm90/prefill/report.cuh"
#include "attention/sm90/prefill/rows.cuh"
#include "attention/sm90/prefill/uniform.cuh"
#include "attention/sm90/prefill/vote.cuh"
#include "ptx/cluster.h"
#include "ptx/sync.h"
#include "ptx/wgmma.h"

namespace longhaul::sm90 {

template <class Config>
struct Consumer {
  static constexpr int kScores = Config::kTileKeys / 2, kOutputs = Config::kHeadSize / 2;
  static constexpr int kBlocks = Config::kBlocks, kHalf = kBlocks / 2;
  static constexpr uint32_t kAll = (1U << kBlocks) - 1;
  using Place = RingPlace<Config::kStages>;
  using Element = typename Config::Element;
  using ValueProduct = ptx::Wgmma<Element, Config::kHeadSize>;

  typename Config::Shared& shared;
  const PrefillKernelParams& p;
  const int group, warp, lane;  // warpgroup in the block, warp in it
  uint32_t vote_parity = 0;
  uint32_t items = 0, tiles = 0;  // finished so far
  Place place{};                  // of the next tile of keys or values

  // Of the item in work.
  float o[kOutputs];
  RowState row;
  float log2_lambda_raw;  // the threshold, in raw units; -inf: none
  float below[2];         // a row drops blocks whose maximum lies below

  __device__ Consumer(typename Config::Shared& s, const PrefillKernelParams& params, int thread)
      : shared(s), p(params), group(uniform(thread / 128)), warp(uniform(thread % 128 / 32)), lane(thread % 32) {}

  __device__ __forceinline__ int first_row(const WorkItem& w) const {
    return w.position + group * Config::kGroupRows + 16 * warp + lane / 4;
  }
  __device__ __forceinline__ int pair() const { return 2 * (lane % 4); }
  __device__ __forceinline__ void wait(ptx::Mbarrier& barrier, uint32_t parity) {
    while (!__any_sync(0xffffffff, ptx::mbarrier_try_wait(&barrier, parity))) {
    }
  }
  __device__ __forceinline__ void wait_for_tile(const Place& at) { wait(shared.tile_full[at.stage], at.parity); }
  /// Gives a stage back to the producers of all blocks of the cluster, which fill it together. The tile must have come:
  /// an arrival before would count for the one that had the stage before.
  __device__ __forceinline__ void release_tile(const Place& at) {
    if (lane < p.ranks) ptx::mbarrier_arrive_at(&shared.tile_empty[at.stage], lane);
  }
  __device__ __forceinline__ void release_query() {
    if (lane == 0) ptx::mbarrier_arrive(&shared.query_empty);
  }

  /// Starts s = Q K^T; the caller waits for it.
  __device__ __forceinline__ void start_scores(float (&s)[kScores], const uint8_t* keys) {
    using ScoreProduct = ptx::Wgmma<Element, Config::kTileKeys>;
    const uint64_t a = ptx::matrix_descriptor(shared.query + group * Config::kGroupRows * 128, 0);
    const uint64_t b = ptx::matrix_descriptor(keys, 0);
    ptx::pin(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Config::kHeadSize / 16; ++k) {
      const uint32_t column = k % 4 * 32;
      ScoreProduct::shared(s, ptx::advance(a, k / 4 * Config::kQueryPanelBytes + column),
                           ptx::advance(b, k / 4 * Config::kKeyPanelBytes + column), k > 0);
    }
    ptx::wgmma_commit();
  }

  /// o += P V of block k; its probabilities lie in the first registers of its scores.
  static __device__ __forceinline__ void multiply_block(float (&o)[kOutputs], const float (&s)[kScores], int k,
                                                        uint64_t values) {
    const uint32_t probabilities[4] = {__float_as_uint(s[8 * k]), __float_as_uint(s[8 * k + 1]),
                                       __float_as_uint(s[8 * k + 2]), __float_as_uint(s[8 * k + 3])};
    ValueProduct::registers(o, probabilities, ptx::advance(values, k * 16 * 128));
  }

  /// Zeroes the value rows past the request's end, which hold what the cache happened to hold: 0 * NaN is NaN.
  __device__ __forceinline__ void clear_past_end(uint8_t* values, int from) {
    const int chunks = (Config::kTileKeys - from) * 8 * Config::kPanels;
    for (int begin = 0; begin < chunks; begin += 128) {  // the same number of rounds for all lanes: no divergence
      const int i = begin + warp * 32 + lane;
      if (i >= chunks) continue;
      const int panel = i % Config::kPanels, chunk = i / Config::kPanels;
      *reinterpret_cast<uint4*>(values + panel * Config::kKeyPanelBytes + from * 128 + chunk * 16) = uint4{};
    }
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kConsumerBarrier + group, 128);
  }

  /// Exponentials of block b, added to `sums`; its probabilities into the first registers of its scores.
  __device__ __forceinline__ void exponentials(float (&s)[kScores], int b, const float (&shift)[2], float (&sums)[2]) {
#pragma unroll
    for (int i = 8 * b; i < 8 * b + 8; ++i) {
      const int r = i / 2 % 2;
      s[i] = ptx::exp2_approximate(fmaf(s[i], p.scale_log2, -shift[r]));
      sums[r] += s[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[8 * b + i] = __uint_as_float(ptx::pack<Element>(s[8 * b + 2 * i], s[8 * b + 2 * i + 1]));
  }

  /// Does something for each block in `keep`; in the dense kernel for all.
  template <class Action>
  static __device__ __forceinline__ void each_kept(uint32_t keep, const Action& action) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two levels, because a branch takes a dozen cycles and most blocks of most tiles are dropped.
      if (Config::kSkip && (keep >> (kHalf * half) & ((1 << kHalf) - 1)) == 0) continue;
#pragma unroll
      for (int b = kHalf * half; b < kHalf * half + kHalf; ++b)
        if (!Config::kSkip || keep >> b & 1) action(b);
    }
  }

  /// Softmax of the blocks in `keep`, and starts o += P V of them; the caller waits for it.
  __device__ __forceinline__ void use_blocks(float (&s)[kScores], uint32_t keep, const Place& place_of_values,
                                             const GroupTiles& range, int first_key) {
    const float shift[2] = {finite(row.base[0]) * p.scale_log2, finite(row.base[1]) * p.scale_log2};
    float sums[2] = {};
    uint8_t* const tile = shared.tiles[place_of_values.stage];
    const uint64_t values = ptx::matrix_descriptor(tile, Config::kKeyPanelBytes);
    if (!Config::kSkip || keep == kAll) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) exponentials(s, b, shift, sums);
    } else {
      each_kept(keep, [&](int b) { exponentials(s, b, shift, sums); });
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) row.l[r] = __fadd_rn(row.l[r], sums[r]);
    wait_for_tile(place_of_values);
    if (range.kv_length - first_key < Config::kTileKeys) clear_past_end(tile, range.kv_length - first_key);
    ptx::pin(o);
    ptx::pin(s);
    if (!Config::kSkip || keep == kAll) {
      ptx::wgmma_fence();
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) multiply_block(o, s, b, values);
    } else {
      each_kept(keep, [&](int b) {
        ptx::wgmma_fence();
        multiply_block(o, s, b, values);
      });
    }
    ptx::wgmma_commit();
  }

  /// Rule sum: what a block's maximum is compared with is the logarithm of the mass kept so far and of the tile's
  /// maximum.
  __device__ __forceinline__ void sum_reference(const float (&tile_max)[2], float (&reference)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float shift = finite(row.base[r]) * p.scale_log2;
      const float mass = quad_sum(row.l[r]) + ptx::exp2_approximate(tile_max[r] * p.scale_log2 - shift);
      reference[r] = (shift + ptx::log2_approximate(mass)) * p.raw_per_log2;
    }
  }

  /// Raises the running maxima. Sums keep the base of their exponents until a maximum lies more than 8 binary orders
  /// above it: few rows ever rise so far again, and 256 is no danger to a sum or a probability.
  template <bool voting>
  __device__ __forceinline__ void raise_maxima(const float (&tile_max)[2]) {
    constexpr float kOrders = 8;
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row.m[r] = ptx::max_or_nan(row.m[r], tile_max[r]);
      if (voting) below[r] = drop_below(row.m[r], log2_lambda_raw);
      far = far || (row.m[r] - row.base[r]) * p.scale_log2 > kOrders;
    }
    if (!__any_sync(0xffffffff, far)) return;
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor[r] = ptx::exp2_approximate((row.base[r] - finite(row.m[r])) * p.scale_log2);
      row.base[r] = row.m[r];
      row.l[r] = __fmul_rn(row.l[r], factor[r]);  // not fused with a sum: dense and skipping kernels must agree
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i / 2 % 2];
  }

  /// Caps and masks the scores of keys from first_key on. Returns the blocks (bits) that must be kept.
  template <int n>
  __device__ __forceinline__ uint32_t prepare_scores(float (&s)[n], const WorkItem& w, int first_key, bool masked) {
    if (p.cap > 0) cap_scores(s, p.cap, p.cap_scale);
    if (!masked) return 0;
    asm volatile("" ::: "memory");  // or the item's fields are read for every tile
    const RowView visible(p, w, first_row(w));
    return mask_scores(s, visible, first_key, pair());
  }

  __device__ __forceinline__ bool raises_maximum(const float (&tile_max)[2]) const {
    return __any_sync(0xffffffff, !(tile_max[0] <= row.m[0]) || !(tile_max[1] <= row.m[1]));
  }

  /// Joins scores into the running maxima.
  __device__ __forceinline__ void meet(const float (&s)[kScores]) {
    float maxima[2];
    bool unused[kBlocks];
    scan_scores<false>(s, below, maxima, unused);
    if (!raises_maximum(maxima)) return;
    quad_max(maxima);
    raise_maxima<false>(maxima);
  }

  /// The same, and the blocks that both rows of the thread would drop.
  __device__ __forceinline__ void meet_and_vote(const float (&s)[kScores], bool (&drop)[kBlocks]) {
    float maxima[2];
    scan_scores<true>(s, below, maxima, drop);
    // Most scores raise no maximum of the warp's 16 rows: one scan is all, without shuffles.
    if (!raises_maximum(maxima)) return;
    quad_max(maxima);
    raise_maxima<true>(maxima);
    scan_scores<true>(s, below, maxima, drop);
  }

  /// The same with a mask, with rule sum, and where nobody votes.
  __device__ __forceinline__ void meet_in_any_case(const float (&s)[kScores], bool masked, bool voting,
                                                   bool (&drop)[kBlocks]) {
    float maxima[2];
    scan_scores<false>(s, below, maxima, drop);
    quad_max(maxima);
    raise_maxima<true>(maxima);
    float reference[2] = {row.m[0], row.m[1]};
    if (p.rule == SkipRule::sum) sum_reference(maxima, reference);
    float limit[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      limit[r] = drop_below(reference[r], log2_lambda_raw);
      // A row that sees no key of a block, whose maximum then is -inf, is not asked.
      if (masked) limit[r] = fmaxf(limit[r], -FLT_MAX);
      if (!voting) limit[r] = -INFINITY;
    }
    scan_scores<true>(s, limit, maxima, drop);
  }

  /// Hands the kept blocks of the tile in work to the warp that reports.
  __device__ __forceinline__ void report(uint32_t keep) {
    if (!reporting<Config>(p) || warp != 0) return;
    const uint32_t slot = tiles % Config::kReports;
    wait(shared.report_empty[group][slot], (tiles / Config::kReports & 1) ^ 1);
    if (lane == 0) {
      shared.reports[group][slot] = static_cast<uint8_t>(keep);
      ptx::mbarrier_arrive(&shared.report_full[group][slot]);
    }
  }

  /// Gives the values of a tile back and reports it: late, while the next scores are under way. A dropped tile's
  /// values were not waited for before.
  __device__ __forceinline__ void finish_tile(const Place& values, uint32_t keep) {
    wait_for_tile(values);
    release_tile(values);
    report(keep);
    ++tiles;
  }

  /// Tiles of the item that no row of this warpgroup sees.
  __device__ __forceinline__ void pass_tiles(int count) {
    for (int i = 0; i < count; ++i) {
      wait_for_tile(place);
      release_tile(place);
      place.advance();
      finish_tile(place, kAll);
      place.advance();
    }
  }

  /// The blocks that any warp of the group would keep. `plain`: all rows see the whole tile, it is not the group's
  /// first, and nothing but rule max is asked for.
  __device__ __forceinline__ uint32_t vote(float (&s)[kScores], const WorkItem& w, const FullView& view, int first_key,
                                           bool plain, bool voting) {
    bool drop[kBlocks];
    if (plain) {
      meet_and_vote(s, drop);
    } else {
      const bool masked = !view.whole(first_key, Config::kTileKeys);
      const uint32_t infinite = prepare_scores(s, w, first_key, masked);
      meet_in_any_case(s, masked, voting, drop);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) drop[b] = drop[b] && !(infinite >> b & 1);
    }
    uint32_t keep = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) keep |= (__any_sync(0xffffffff, !drop[b]) ? 1U : 0U) << b;
    auto& votes = shared.votes[group][vote_parity];
    if (lane == 0) {
      votes[warp] = static_cast<uint8_t>(keep);
      ptx::mbarrier_arrive(&shared.vote_full[group]);
    }
    wait(shared.vote_full[group], vote_parity);
    vote_parity ^= 1;
    // One lane reads for all: its next arrival orders the read before the write that comes two votes later.
    return uniform(lane == 0 ? joint_vote(votes) : 0);
  }

  /// All tiles of an item. `thresholds`: it has one.
  __device__ __forceinline__ void compute_tiles(const WorkItem& w, const GroupTiles& range, const FullView& view,
                                                bool thresholds) {
    float s[kScores];
    const bool asked = p.cap > 0 || p.rule == SkipRule::sum;
    const int plain_begin = view.begin, plain_end = asked ? 0 : min(view.end, range.first_key);
    int first_key = range.first_key;
    uint32_t keep = kAll;
    Place values;
#pragma unroll 1
    for (int i = 0; i < range.count; ++i, first_key -= Config::kTileKeys) {
      const Place keys = place;
      wait_for_tile(keys);
      ptx::wgmma_wait<0>();  // values of the tile before
      ptx::pin(o);
      start_scores(s, shared.tiles[keys.stage]);
      if (i > 0) finish_tile(values, keep);
      place.advance();
      values = place;
      place.advance();
      ptx::wgmma_wait<0>();
      ptx::pin(s);
      release_tile(keys);
      if (i == range.count - 1) release_query();

      if (Config::kSkip && thresholds) {
        const bool plain = first_key >= plain_begin && first_key + Config::kTileKeys <= plain_end;
        keep = vote(s, w, view, first_key, plain, i > 0);
      } else {
        prepare_scores(s, w, first_key, !view.whole(first_key, Config::kTileKeys));
        meet(s);
      }
      if (keep == 0) continue;
      use_blocks(s, keep, values, range, first_key);
    }
    ptx::wgmma_wait<0>();
    ptx::pin(o);
    if (range.count > 0) finish_tile(values, keep);
  }

  __device__ __forceinline__ void compute(const WorkItem& w) {
    const GroupTiles range = uniform(group_tiles(p, w, group));
    const FullView view = uniform(full_view(p, w, group));
    const int older = uniform(w.tiles) - range.newer - range.count;
    wait(shared.query_full, items & 1);
    if (range.count == 0) release_query();
    pass_tiles(range.newer);
    log2_lambda_raw = Config::kSkip ? log2_lambda(p, w) * p.raw_per_log2 : -INFINITY;
    below[0] = below[1] = -INFINITY;
    compute_tiles(w, range, view, Config::kSkip && uniform(log2_lambda_raw > -INFINITY ? 1 : 0) != 0);
    pass_tiles(older);
  }

  __device__ __forceinline__ void finish(const WorkItem& w) {
    constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;
    const RowView visible(p, w, first_row(w));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int position = first_row(w) + 8 * r;
      float sum = quad_sum(row.l[r]), shift = row.base[r] * p.scale_log2, factor = 1;
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
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.item_empty[slot]);
      ++items;
    }
  }
};

}  // namespace longhaul::sm90
