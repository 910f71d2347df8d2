// A warp of the decode kernel: 16 rows against the tiles of its part, newest first: scores, vote, softmax, P V.
//
// A warp with tiles of its own waits for nobody. Where a request has more than 16 rows, two or four warps hold 16 each,
// read the same copies and vote together.
#pragma once

#include "attention/sm90/decode/report.cuh"
#include "attention/sm90/decode/rows.cuh"
#include "attention/sm90/decode/stream.cuh"
#include "ptx/mma.h"

namespace longhaul::sm90 {

template <class Config>
struct DecodeWarp {
  using Element = typename Config::Element;
  static constexpr int kScores = Config::kTileKeys / 2, kOutputs = Config::kHeadSize / 2;
  static constexpr int kBlocks = Config::kBlocks;
  static constexpr uint32_t kAll = (1U << kBlocks) - 1;
  static constexpr int kSteps = Config::kHeadSize / 16;  // of 16 columns

  typename Config::Shared& shared;
  const DecodeKernelParams& p;
  const int warp, lane;
  Stream<Config> stream;
  Role role{};
  uint32_t parities = 0;               // of the next phase of each slot, a bit each
  int slot = 0;                        // of the part's, next to be read
  int first_slot = 0, ring_slots = 0;  // the part's first; its ring's, beside one for values if skipping

  // Of the segment in work.
  uint32_t query[kSteps][4];
  float o[kOutputs];
  RowState row;
  Seed seed;
  int row_count;  // of all warps that share the keys
  DecodeRow rows[2];
  float lambda[2], below[2];
  uint32_t weights[kBlocks][4];  // of the tile whose values are to come
  uint32_t kept = 0;             // its blocks
  int kept_tile = 0;

  __device__ DecodeWarp(typename Config::Shared& s, const DecodeKernelParams& params, int warp_, int lane_)
      : shared(s), p(params), warp(warp_), lane(lane_), stream{s, params, lane_} {}

  __device__ __forceinline__ int row_index(int r) const { return 16 * role.row_tile + lane / 4 + 8 * r; }
  __device__ __forceinline__ int pair() const { return 2 * (lane % 4); }
  __device__ __forceinline__ bool leads() const { return role.row_tile == 0; }

  /// All warps that read the part's copies.
  __device__ __forceinline__ void join() {
    if (role.row_warps == 1) {
      __syncwarp();
    } else {
      ptx::named_barrier_sync(1 + role.part, 32 * role.row_warps);
    }
  }

  __device__ __forceinline__ void wait_for(int at) {
    while (!__any_sync(0xffffffff, ptx::mbarrier_try_wait(&shared.full[at], parities >> at & 1))) {
    }
    parities ^= 1U << at;
  }

  /// Slot with the next keys or (dense) values, once they have come.
  __device__ __forceinline__ uint8_t* next_tile() {
    const int at = first_slot + slot;
    if (++slot == ring_slots) slot = 0;
    wait_for(at);
    return shared.tiles[at];
  }

  // --- queries ---

  /// A operands of Q K^T: rows lane / 4 and 8 more, columns pair and 8 more of each 16.
  __device__ __forceinline__ void load_query() {
    const auto* q = static_cast<const Element*>(p.q);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool exists = row_index(r) < row_count;
      const Element* from = q + rows[r].token * p.q_token + rows[r].head * p.q_head + pair();
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        query[k][r] = exists ? *reinterpret_cast<const uint32_t*>(from + 16 * k) : 0;
        query[k][r + 2] = exists ? *reinterpret_cast<const uint32_t*>(from + 16 * k + 8) : 0;
      }
    }
  }

  // --- products ---

  /// s = Q K^T. Boxes of 2^shift keys lie one after the other, in each the 64-column panels.
  __device__ __forceinline__ void score(float (&s)[kScores], const uint8_t* keys) {
    const int key = lane % 8 + (lane / 16) * 8;
    const uint32_t base = ptx::shared_address(keys);
    const uint32_t in_block = key * 128 + ((lane / 8 % 2 ^ lane % 8) << 4);
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint32_t block = base + block_offset(b, p.k_box_shift) + in_block;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t x[4];
        ptx::load_matrices(x, (block + (k / 4 << (p.k_box_shift + 7))) ^ (k % 4 << 5));
        ptx::multiply<Element>(s + 8 * b, query[k], x[0], x[1]);
        ptx::multiply<Element>(s + 8 * b + 4, query[k], x[2], x[3]);
      }
    }
  }

  static __device__ __forceinline__ uint32_t block_offset(int b, int shift) {
    const int key = b * Config::kBlockKeys;
    return (key >> shift) * (Config::kPanels * 128 << shift) + (key & ((1 << shift) - 1)) * 128;
  }

  /// o += P V of the blocks in `keep`, whose probabilities are in `weights`.
  __device__ __forceinline__ void add_values(const uint8_t* values, uint32_t keep) {
    const int key = lane % 16;
    const uint32_t base = ptx::shared_address(values);
    const uint32_t in_block = key * 128 + ((lane / 16 ^ lane % 8) << 4);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (Config::kSkip && !(keep >> b & 1)) continue;
      const uint32_t block = base + block_offset(b, p.v_box_shift) + in_block;
#pragma unroll
      for (int c = 0; c < kSteps; ++c) {
        uint32_t x[4];
        ptx::load_transposed(x, (block + (c / 4 << (p.v_box_shift + 7))) ^ (c % 4 << 5));
        ptx::multiply<Element>(o + 8 * c, weights[b], x[0], x[1]);
        ptx::multiply<Element>(o + 8 * c + 4, weights[b], x[2], x[3]);
      }
    }
  }

  /// Zeroes the value rows past the request's end, which hold what the cache happened to hold: 0 * NaN is NaN.
  __device__ __forceinline__ void clear_past_end(uint8_t* values, int from) {
    for (int i = lane; i < (Config::kTileKeys - from) * 8 * Config::kPanels; i += 32) {
      const int key = from + i / (8 * Config::kPanels), chunk = i % 8, panel = i / 8 % Config::kPanels;
      const int shift = p.v_box_shift, in_box = key & ((1 << shift) - 1);
      uint8_t* box = values + (key >> shift) * (Config::kPanels * 128 << shift);
      *reinterpret_cast<uint4*>(box + (panel << (shift + 7)) + in_box * 128 + chunk * 16) = uint4{};
    }
    // The next copy into the slot comes after this warp's stores. Warps that share the slot clear it all the same.
    ptx::fence_async_shared();
    __syncwarp();
  }

  // --- softmax ---

  /// Below what a row drops a block. A row that does not exist would drop all.
  __device__ __forceinline__ void set_limit(int r) {
    below[r] = row_index(r) < row_count ? drop_below(ptx::max_or_nan(seed.m[r], row.m[r]), lambda[r]) : INFINITY;
  }

  /// Raises the running maxima by a tile's. Sums keep the base of their exponents until a maximum lies more than 8
  /// binary orders above it.
  __device__ __forceinline__ void raise_maxima(const float (&tile_max)[2]) {
    constexpr float kOrders = 8;
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row.m[r] = ptx::max_or_nan(row.m[r], tile_max[r]);
      if (Config::kSkip) set_limit(r);
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

  __device__ __forceinline__ bool raises_maximum(const float (&tile_max)[2]) const {
    return __any_sync(0xffffffff, !(tile_max[0] <= row.m[0]) || !(tile_max[1] <= row.m[1]));
  }

  /// Rule sum: the logarithm of the mass kept so far, the seed's included, and of the tile's maximum; raw units.
  __device__ __forceinline__ float sum_reference(int r, float tile_max) const {
    const float shift = finite(row.base[r]) * p.scale_log2, l = quad_sum(row.l[r]), own = tile_max * p.scale_log2;
    const float joint = fmaxf(fmaxf(shift, own), seed.mass[r]);
    if (!(joint < INFINITY)) return INFINITY;
    const float mass = l * ptx::exp2_approximate(shift - joint) + ptx::exp2_approximate(own - joint) +
                       ptx::exp2_approximate(seed.mass[r] - joint);
    return (joint + ptx::log2_approximate(mass)) * p.raw_per_log2;
  }

  /// Joins a tile's scores into the maxima. Returns the blocks that must be kept. `plain`: all rows see the whole tile,
  /// rule max, no cap.
  __device__ __forceinline__ uint32_t meet(float (&s)[kScores], int first_key, bool whole, bool voting) {
    uint32_t keep = 0;
    if (p.cap > 0) cap_scores(s, p.cap, p.cap_scale);
    if (!whole) keep = mask_scores(s, rows, first_key, pair());
    float maxima[2];
    bool drop[kBlocks];
    scan_scores<Config::kSkip>(s, below, maxima, drop);
    const bool plain = !Config::kSkip || (whole && p.rule == SkipRule::max);
    if (raises_maximum(maxima) || !plain) {
      quad_max(maxima);
      raise_maxima(maxima);
      if constexpr (Config::kSkip) vote_again(s, maxima, whole, drop);
    }
    if constexpr (!Config::kSkip) return kAll;
    if (!voting) return kAll;
    uint32_t joint = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) joint |= (__any_sync(0xffffffff, !drop[b] || (keep >> b & 1)) ? 1U : 0U) << b;
    return joint;
  }

  __device__ __forceinline__ void vote_again(const float (&s)[kScores], const float (&tile_max)[2], bool whole,
                                             bool (&drop)[kBlocks]) {
    float limit[2] = {below[0], below[1]}, unused[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (p.rule == SkipRule::sum) {
        const float reference = sum_reference(r, tile_max[r]);  // by all lanes: it shuffles
        if (row_index(r) < row_count) limit[r] = drop_below(reference, lambda[r]);
      }
      // A row that sees no key of a block, whose maximum then is -inf, is not asked.
      if (!whole) limit[r] = fmaxf(limit[r], -FLT_MAX);
    }
    scan_scores<true>(s, limit, unused, drop);
  }

  /// The newest tile's maxima and mass, for a part that does not begin with it.
  __device__ __forceinline__ void plant_seed(float (&s)[kScores], int first_key, bool whole) {
    if (p.cap > 0) cap_scores(s, p.cap, p.cap_scale);
    if (!whole) mask_scores(s, rows, first_key, pair());
    bool unused[kBlocks];
    scan_scores<false>(s, below, seed.m, unused);
    quad_max(seed.m);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      set_limit(r);
      if (p.rule == SkipRule::max) continue;
      const float shift = finite(seed.m[r]) * p.scale_log2;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kScores; ++i)
        if (i / 2 % 2 == r) sum += ptx::exp2_approximate(fmaf(s[i], p.scale_log2, -shift));
      seed.mass[r] = shift + ptx::log2_approximate(quad_sum(sum));
      if (!(seed.m[r] < INFINITY)) seed.mass[r] = INFINITY;  // NaN or +inf met: nothing is dropped
    }
  }

  /// Probabilities of the blocks in `keep`, added to the sums and packed for P V.
  __device__ __forceinline__ void weigh(const float (&s)[kScores], uint32_t keep) {
    const float shift[2] = {finite(row.base[0]) * p.scale_log2, finite(row.base[1]) * p.scale_log2};
    float sums[2] = {};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (Config::kSkip && !(keep >> b & 1)) continue;
      float w[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        w[i] = ptx::exp2_approximate(fmaf(s[8 * b + i], p.scale_log2, -shift[i / 2 % 2]));
        sums[i / 2 % 2] += w[i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[b][i] = ptx::pack<Element>(w[2 * i], w[2 * i + 1]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) row.l[r] = __fadd_rn(row.l[r], sums[r]);
  }

  // --- a segment ---

  /// `after`: what comes after the segment.
  __device__ void start(const Segment& s, const SegmentWalk& after) {
    if (role.row_warps != s.row_warps) share_out(s, after);
    row_count = s.rows;
    row = RowState{};
    seed = Seed{};
    kept = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows[r] = decode_row(p, s, row_index(r));
      lambda[r] = Config::kSkip && row_index(r) < s.rows ? log2_lambda_raw(p, s, rows[r].head) : 0;
      set_limit(r);
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    load_query();
  }

  /// The rows of the segments to come are shared out among the warps in another way: rings and their barriers begin
  /// anew. No copy is under way: the stream stops before such a segment. Warps that shared the copies of others have
  /// not moved theirs.
  __device__ void share_out(const Segment& s, const SegmentWalk& after) {
    __syncthreads();
    if (warp == 0 && lane < Config::kSlots) ptx::mbarrier_init(&shared.full[lane], 1);
    ptx::fence_mbarrier_init();
    __syncthreads();
    role = role_of(s.row_warps, warp);
    const int slots = Config::kSlots / role.parts;
    first_slot = role.part * slots;
    ring_slots = slots - (Config::kSkip ? 1 : 0);
    parities = 0;
    slot = 0;
    if (leads()) stream.start(s, after, role);
  }

  __device__ __forceinline__ void compute(const Segment& s) {
    const Visits visits(s, role, Config::kSkip);
    const CommonView view = common_view(p, s);
    Report<Config> report(p, s, role, lane);
    for (int visit = 0; visit < visits.all(); ++visit) {
      const int tile = visits.tile(visit), first_key = tile * Config::kTileKeys;
      const bool whole = view.whole(first_key);
      float scores[kScores];
      const uint8_t* keys = next_tile();
      score(scores, keys);
      join();
      if (leads()) stream.advance();
      if (Config::kSkip) {
        if (visit < visits.seeds) {
          plant_seed(scores, first_key, whole);
          continue;
        }
        add_pending(s);
        const bool voting = tile != visits.newest_tile;
        const uint32_t keep = joint(meet(scores, first_key, whole, voting));
        report.tile(tile, keep, whole);
        if (keep == 0) continue;
        ask_for_values(s, tile, keep);
        weigh(scores, keep);
      } else {
        meet(scores, first_key, whole, false);
        weigh(scores, kAll);
        uint8_t* values = next_tile();
        use_values(s, values, tile, kAll);
        join();
        if (leads()) stream.advance();
      }
    }
    if (Config::kSkip) add_pending(s);
    report.finish();
  }

  __device__ __forceinline__ void use_values(const Segment& s, uint8_t* values, int tile, uint32_t keep) {
    const int left = s.shape.kv_length - tile * Config::kTileKeys;
    if (left < Config::kTileKeys) clear_past_end(values, left);
    add_values(values, keep);
  }

  // --- skipping ---

  /// The blocks that any of the warps with the same keys keeps.
  __device__ __forceinline__ uint32_t joint(uint32_t keep) {
    if (role.row_warps == 1) return keep;
    if (lane == 0) shared.votes[warp] = static_cast<uint8_t>(keep);
    join();
    uint32_t all = 0;
    for (int i = 0; i < role.row_warps; ++i)
      all |= static_cast<volatile uint8_t*>(shared.votes)[warp - role.row_tile + i];
    join();
    return all;
  }

  __device__ __forceinline__ int value_slot() const { return first_slot + ring_slots; }

  __device__ __forceinline__ void ask_for_values(const Segment& s, int tile, uint32_t keep) {
    kept = keep;
    kept_tile = tile;
    if (!leads()) return;
    const BoxStart place = find_box(p, s, tile, p.v_box_shift, lane);
    const int at = uniform(value_slot());
    const uint32_t exist = (1U << boxes_of(s, tile, p.v_box_shift)) - 1;
    copy_boxes<Config>(p.v, uniform(s.head), place, keep & exist, p.v_box_shift, shared.tiles[at], &shared.full[at],
                       lane);
  }

  /// Adds the values that were asked for at the tile before: while they were under way, the next scores were made.
  __device__ __forceinline__ void add_pending(const Segment& s) {
    if (kept == 0) return;
    const int at = value_slot();
    wait_for(at);
    use_values(s, shared.tiles[at], kept_tile, kept);
    kept = 0;
    join();  // before the slot is filled again
  }
};

}  // namespace longhaul::sm90
