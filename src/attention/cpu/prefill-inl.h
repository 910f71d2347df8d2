// Prefill, one work item: the query heads of a KV head over up to 256 rows, key tiles newest first.
//
// Rows lie in the vector lanes: scores are S[key][row], so row maxima, exponentials, sums and votes need no operation across
// lanes, keys and values are read as they lie (one scalar broadcast per FMA column), and a block of 16 keys can be left out of
// P.V without disturbing the rest. A voting group is 16 rows x 16 keys. Scores are kept in log2 units.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr int kRows = 16;  // rows of a voting group
inline constexpr int kVecs = kRows / kLanes;
inline constexpr int kMaxProbes = 32;
// Floats from one key's (value's) row to the next. Without the 64 bytes of padding the rows of a tile, 512 bytes apart, would share
// 8 of a 32 KB cache's 64 sets.
template <int kD>
inline constexpr int kRowStride = kD + 16;
static_assert(kRows == kCpuPrefill.group_rows);

/// acc[column][vec] += sum over k of a[k][row] * b[k * b_k + column * kColumnStride]; `a` holds 16 rows for each k.
template <int kN, int kColumnStride>
LONGHAUL_INLINE void outer_products(const float* a, const float* b, int64_t b_k, int count, F (&acc)[kN][kVecs]) {
  for (int k = 0; k < count; ++k) {
    F rows[kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < kVecs; ++r) rows[r] = load(a + k * kRows + r * kLanes);
#pragma GCC unroll 32
    for (int n = 0; n < kN; ++n) {
      const F column = set1(b[n * kColumnStride]);
#pragma GCC unroll 8
      for (int r = 0; r < kVecs; ++r) acc[n][r] = fma(column, rows[r], acc[n][r]);
    }
    b += b_k;
  }
}

/// kN columns of S = K.Q^T: scores of kN keys.
template <int kN, int kD>
LONGHAUL_INLINE void score_columns(const float* query, const float* key, float* scores) {
  F acc[kN][kVecs];
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kVecs; ++r) acc[n][r] = zero();
  outer_products<kN, kRowStride<kD>>(query, key, 1, kD, acc);
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kVecs; ++r) store(scores + n * kRows + r * kLanes, acc[n][r]);
}

// Not inlined, here and below: once per head size instead of once per mode and head size, a third of the compile time.
template <int kD>
__attribute__((noinline)) void score_tile(const float* query, const float* keys, float* scores) {
  int key = 0;
  for (; key + kColumns <= kTile; key += kColumns) score_columns<kColumns, kD>(query, keys + key * kRowStride<kD>, scores + key * kRows);
  constexpr int kRest = kTile % kColumns;
  if constexpr (kRest > 0) score_columns<kRest, kD>(query, keys + key * kRowStride<kD>, scores + key * kRows);
}

/// Which blocks of a tile are computed, in visiting order.
struct KeptBlocks {
  int count = 0;
  int block[kBlocks];
};

/// kN columns of O = O * rescale + P.V over the kept blocks.
template <int kN, int kDv>
LONGHAUL_INLINE void output_columns(const float* weights, const float* values, const KeptBlocks& kept, const F (&rescale)[kVecs],
                                    float* output) {
  F acc[kN][kVecs];
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kVecs; ++r) acc[n][r] = load(output + n * kRows + r * kLanes) * rescale[r];
  for (int i = 0; i < kept.count; ++i) {
    const int key = kept.block[i] * kBlock;
    outer_products<kN, 1>(weights + key * kRows, values + key * kRowStride<kDv>, kRowStride<kDv>, kBlock, acc);
  }
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kVecs; ++r) store(output + n * kRows + r * kLanes, acc[n][r]);
}

template <int kDv>
__attribute__((noinline)) void add_values(const float* weights, const float* values, const KeptBlocks& kept, const F (&rescale)[kVecs], float* output) {
  int c = 0;
  for (; c + kColumns <= kDv; c += kColumns) {
    output_columns<kColumns, kDv>(weights, values + c, kept, rescale, output + c * kRows);
  }
  constexpr int kRest = kDv % kColumns;
  if constexpr (kRest > 0) output_columns<kRest, kDv>(weights, values + c, kept, rescale, output + c * kRows);
}

/// The part of a tile that a group's rows see, by row: keys [low, high) counted from the tile's first key.
struct TileMask {
  alignas(64) float low[kRows], high[kRows];
};

/// Statistics of one tile of one group, by row.
struct TileScores {
  alignas(64) float scores[kTile * kRows];  // log2 units; -inf where not visible; then the weights
  alignas(64) float block_max[kBlocks][kRows];
  alignas(64) float block_bad[kBlocks][kRows];  // 0, or NaN where the row sees a score in the block that is not finite
};

/// One voting group of one head: 16 rows at absolute positions [position, position + 16), of which [begin, end) exist.
struct Group {
  int head;
  int64_t position;
  int begin, end;
  int64_t mask_group;  // its index in skip_mask
  KeyRange keys;       // union over its rows
  float lambda, log2_lambda;
  bool first;  // no tile visited yet
  int64_t visible, skipped;
  int64_t* probe_skipped;
  alignas(64) float max[kRows], sum[kRows];
  float* query;      // [d][16], scaled
  float* output;     // [dv][16]
  float* probe_sum;  // [probes][16], kept sum under each λ (rule sum)

  bool row_exists(int r) const { return r >= begin && r < end; }
};

/// Everything that lives while one item runs; memory comes from the caller's workspace.
template <int kD, int kDv, Mode kMode>
class PrefillRun {
 public:
  PrefillRun(const AttentionParams& p, const PrefillItem& item, float* scratch) : p_(p), item_(item) { lay_out(scratch); }

  static size_t scratch_floats(const AttentionParams& p) {
    const size_t groups = max_groups(p);
    const size_t group_floats = (kD + kDv + (kMode == Mode::probe ? kMaxProbes : 0)) * kRows + sizeof(Group) / sizeof(float);
    return kTile * (kRowStride<kD> + kRowStride<kDv>) + sizeof(TileScores) / sizeof(float) + groups * group_floats + kDv + kD;
  }

  void run() {
    make_groups();
    KeyRange keys = groups_[0].keys;
    for (int g = 1; g < group_count_; ++g) {
      if (groups_[g].keys.empty()) continue;
      keys = keys.empty() ? groups_[g].keys
                          : KeyRange{keys.begin < groups_[g].keys.begin ? keys.begin : groups_[g].keys.begin,
                                     keys.end > groups_[g].keys.end ? keys.end : groups_[g].keys.end};
    }
    if (!keys.empty()) {
      for (int64_t tile = (keys.end - 1) / kTile; tile >= keys.begin / kTile; --tile) visit_tile(tile, keys);
    }
    for (int g = 0; g < group_count_; ++g) finish_group(groups_[g]);
  }

 private:
  static size_t max_groups(const AttentionParams& p) {
    return static_cast<size_t>(p.group) * (prefill_item_positions(p.group) / kRows);
  }

  void lay_out(float* scratch) {
    tile_ = reinterpret_cast<TileScores*>(scratch);
    scratch += sizeof(TileScores) / sizeof(float);
    groups_ = reinterpret_cast<Group*>(scratch);
    scratch += max_groups(p_) * sizeof(Group) / sizeof(float);
    keys_ = scratch;
    scratch += kTile * kRowStride<kD>;
    values_ = scratch;
    scratch += kTile * kRowStride<kDv>;
    row_ = scratch;
    pool_ = scratch + kD + kDv;
  }

  // --- groups ---------------------------------------------------------------------------------------------------------

  void make_groups() {
    const int64_t kv_length = p_.kv_length(item_.request);
    const int64_t offset = kv_length - p_.q_length(item_.request);  // position of query 0
    const int64_t first_group = floor_div(offset, kRows);           // of the request, in skip_mask
    group_count_ = 0;
    float* pool = pool_;
    for (int h = 0; h < p_.group; ++h) {
      const int head = item_.head_kv * p_.group + h;
      const int64_t last = offset + item_.row_end;
      for (int64_t at = floor_div(offset + item_.row_begin, kRows) * kRows; at < last; at += kRows) {
        Group& g = groups_[group_count_++];
        g.head = head;
        g.position = at;
        const int64_t begin = offset + item_.row_begin - at;
        g.begin = begin > 0 ? static_cast<int>(begin) : 0;
        g.end = last - at < kRows ? static_cast<int>(last - at) : kRows;
        g.mask_group = mask_group_base() + floor_div(at, kRows) - first_group;
        const KeyRange oldest = visible_keys(at + g.begin, kv_length, p_.causal, p_.window_left);
        const KeyRange newest = visible_keys(at + g.end - 1, kv_length, p_.causal, p_.window_left);
        g.keys = oldest.empty() ? newest : newest.empty() ? oldest : KeyRange{oldest.begin, newest.end};
        g.lambda = p_.lambda_of(item_.request, head);
        g.log2_lambda = log2_lambda(g.lambda);
        g.first = true;
        g.visible = g.skipped = 0;
        g.query = pool;
        g.output = pool + kD * kRows;
        pool += (kD + kDv) * kRows;
        if constexpr (kMode == Mode::probe) {
          g.probe_skipped = p_.probe_skipped + static_cast<int64_t>(head) * p_.probes;
          g.probe_sum = pool;
          for (int i = 0; i < p_.probes * kRows; ++i) g.probe_sum[i] = 0;
          pool += kMaxProbes * kRows;
        }
        for (int r = 0; r < kRows; ++r) {
          g.max[r] = -kInfinity;
          g.sum[r] = 0;
        }
        for (int i = 0; i < kDv * kRows; ++i) g.output[i] = 0;
        pack_query(g, offset);
      }
    }
  }

  // Groups of earlier requests in skip_mask.
  int64_t mask_group_base() const {
    int64_t base = 0;
    if (p_.skip_mask == nullptr) return 0;
    for (int b = 0; b < item_.request; ++b) base += request_groups(p_, b, kRows);
    return base;
  }

  void pack_query(Group& g, int64_t offset) {
    // With a soft cap the scores stay in units of the cap until tanh; otherwise they come out in log2 units at once.
    const float scale = p_.scale * p_.q_scale_of(g.head) * p_.k_scale_of(item_.head_kv) *
                        (p_.soft_cap > 0 ? 1.0F / p_.soft_cap : kLog2E);
    for (int r = 0; r < kRows; ++r) {
      if (!g.row_exists(r)) {
        for (int c = 0; c < kD; ++c) g.query[c * kRows + r] = 0;
        continue;
      }
      const int64_t token = p_.cu_q[item_.request] + (g.position + r - offset);
      read_row(p_.q, p_.q_dtype, token * p_.q_token + g.head * p_.q_head, kD, row_);
      for (int c = 0; c < kD; ++c) g.query[c * kRows + r] = row_[c] * scale;
    }
  }

  // --- one tile -------------------------------------------------------------------------------------------------------

  void visit_tile(int64_t tile, KeyRange keys) {
    const int64_t begin = tile * kTile;
    tile_keys_ = {begin > keys.begin ? begin : keys.begin, begin + kTile < keys.end ? begin + kTile : keys.end};
    tile_begin_ = begin;
    for (int j = 0; j < kTile; ++j) {
      float* row = keys_ + j * kRowStride<kD>;
      if (begin + j < tile_keys_.begin || begin + j >= tile_keys_.end) {
        for (int c = 0; c < kD; ++c) row[c] = 0;
      } else {
        read_row(p_.k, p_.kv_dtype, p_.k_offset(item_.request, begin + j, item_.head_kv), kD, row);
      }
    }
    for (int b = 0; b < kBlocks; ++b) values_read_[b] = false;
    for (int g = 0; g < group_count_; ++g) {
      Group& group = groups_[g];
      if (group.keys.begin < tile_keys_.end && group.keys.end > tile_keys_.begin) visit_group(group);
    }
    if constexpr (kMode == Mode::skip) count_unread_values();
  }

  void visit_group(Group& g) {
    score_tile<kD>(g.query, keys_, tile_->scores);
    if (p_.soft_cap > 0) cap_scores();
    TileMask mask;
    const bool partial = make_mask(g, mask);
    if (partial) {
      statistics<true>(mask);
    } else {
      statistics<false>(mask);
    }
    F tile_max[kVecs], joined[kVecs];
    for (int r = 0; r < kVecs; ++r) {
      F m = load(tile_->block_max[0] + r * kLanes);
      for (int b = 1; b < kBlocks; ++b) m = max(load(tile_->block_max[b] + r * kLanes), m);
      tile_max[r] = m;
      joined[r] = max(m, load(g.max + r * kLanes));
    }
    KeptBlocks kept;
    for (int b = kBlocks - 1; b >= 0; --b) {
      if (block_visible(g, b)) kept.block[kept.count++] = b;
    }
    if constexpr (kMode == Mode::skip) {
      if (!g.first) drop_blocks(g, mask, partial, tile_max, joined, kept);
    }
    record(g, mask, partial, kept);
    if constexpr (kMode == Mode::probe) {
      probe(g, mask, partial, tile_max, joined, kept);
    } else if (kept.count > 0) {  // otherwise nothing of this tile joins the result
      accumulate(g, joined, kept);
    }
    g.first = false;
  }

  bool block_visible(const Group& g, int b) const {
    const int64_t begin = tile_begin_ + b * kBlock;
    return g.keys.begin < begin + kBlock && g.keys.end > begin && begin < tile_keys_.end && begin + kBlock > tile_keys_.begin;
  }

  void cap_scores() {
    const F to_log2 = set1(p_.soft_cap * kLog2E);
    for (int i = 0; i < kTile * kRows; i += kLanes) store(tile_->scores + i, tanh(load(tile_->scores + i)) * to_log2);
  }

  /// Fills `mask`; false when every row that exists sees the whole tile (then only the mask's rows that do not exist matter).
  bool make_mask(const Group& g, TileMask& mask) const {
    const int64_t kv_length = p_.kv_length(item_.request);
    bool partial = tile_keys_.begin != tile_begin_ || tile_keys_.end != tile_begin_ + kTile;
    const KeyRange first = visible_keys(g.position + g.begin, kv_length, p_.causal, p_.window_left);
    const KeyRange last = visible_keys(g.position + g.end - 1, kv_length, p_.causal, p_.window_left);
    partial = partial || first.end < tile_begin_ + kTile || last.begin > tile_begin_;
    if (!partial) return false;
    for (int r = 0; r < kRows; ++r) {
      const KeyRange keys =
          g.row_exists(r) ? visible_keys(g.position + r, kv_length, p_.causal, p_.window_left) : KeyRange{0, 0};
      mask.low[r] = clamp_to_tile(keys.begin - tile_begin_);
      mask.high[r] = clamp_to_tile(keys.end - tile_begin_);
    }
    return true;
  }

  static float clamp_to_tile(int64_t key) { return static_cast<float>(key < 0 ? 0 : key > kTile ? kTile : key); }

  /// Masks the scores; block maxima; in skip and probe mode, where a visible score is not finite.
  template <bool kPartial>
  void statistics(const TileMask& mask) {
    for (int b = 0; b < kBlocks; ++b) {
      F block_max[kVecs], bad[kVecs];
      for (int r = 0; r < kVecs; ++r) {
        block_max[r] = set1(-kInfinity);
        bad[r] = zero();
      }
      for (int j = b * kBlock; j < (b + 1) * kBlock; ++j) {
        for (int r = 0; r < kVecs; ++r) {
          float* at = tile_->scores + j * kRows + r * kLanes;
          F s = load(at);
          if constexpr (kPartial) {
            const F key = set1(static_cast<float>(j));
            const M visible = operator_and(less_equal(load(mask.low + r * kLanes), key), less(key, load(mask.high + r * kLanes)));
            if constexpr (kMode != Mode::dense) bad[r] = fma(select(visible, s, zero()), zero(), bad[r]);
            s = select(visible, s, set1(-kInfinity));
            store(at, s);
          } else if constexpr (kMode != Mode::dense) {
            bad[r] = fma(s, zero(), bad[r]);  // inf x 0 and NaN x 0 are NaN
          }
          block_max[r] = max(s, block_max[r]);
        }
      }
      for (int r = 0; r < kVecs; ++r) {
        store(tile_->block_max[b] + r * kLanes, block_max[r]);
        if constexpr (kMode != Mode::dense) store(tile_->block_bad[b] + r * kLanes, bad[r]);
      }
    }
  }

  /// Turns the kept blocks' scores into weights and adds them and their values to the group's state.
  void accumulate(Group& g, const F (&joined)[kVecs], const KeptBlocks& kept) {
    F rescale[kVecs], base[kVecs], sum[kVecs];
    for (int r = 0; r < kVecs; ++r) {
      // A row that has seen nothing has maximum -inf: any finite base gives it weights of 0.
      base[r] = select(less_equal(joined[r], set1(-kInfinity)), zero(), joined[r]);
      rescale[r] = exp2(load(g.max + r * kLanes) - base[r]);
      sum[r] = load(g.sum + r * kLanes) * rescale[r];
      store(g.max + r * kLanes, joined[r]);
    }
    for (int i = 0; i < kept.count; ++i) {
      float* weights = tile_->scores + kept.block[i] * kBlock * kRows;
      for (int j = 0; j < kBlock; ++j) {
        for (int r = 0; r < kVecs; ++r) {
          float* at = weights + j * kRows + r * kLanes;
          const F w = exp2(load(at) - base[r]);
          store(at, w);
          sum[r] = sum[r] + w;
        }
      }
    }
    for (int r = 0; r < kVecs; ++r) store(g.sum + r * kLanes, sum[r]);
    for (int i = 0; i < kept.count; ++i) read_values(kept.block[i]);
    if (values_need_care(kept)) {
      add_values_row_by_row(g, kept, rescale);
    } else {
      add_values<kDv>(tile_->scores, values_, kept, rescale, g.output);
    }
  }

  // --- values ---------------------------------------------------------------------------------------------------------

  void read_values(int b) {
    if (values_read_[b]) return;
    values_read_[b] = true;
    F bad = zero();
    for (int j = b * kBlock; j < (b + 1) * kBlock; ++j) {
      float* row = values_ + j * kRowStride<kDv>;
      if (tile_begin_ + j < tile_keys_.begin || tile_begin_ + j >= tile_keys_.end) {
        for (int c = 0; c < kDv; ++c) row[c] = 0;
        continue;
      }
      read_row(p_.v, p_.kv_dtype, p_.v_offset(item_.request, tile_begin_ + j, item_.head_kv), kDv, row);
      for (int c = 0; c < kDv; c += kLanes) bad = fma(load(row + c), zero(), bad);
    }
    values_bad_[b] = any(is_nan(bad));
  }

  /// A weight of 0 times a value that is not finite is NaN: rows that do not see that key must not meet it.
  bool values_need_care(const KeptBlocks& kept) const {
    for (int i = 0; i < kept.count; ++i) {
      if (values_bad_[kept.block[i]]) return true;
    }
    return false;
  }

  void add_values_row_by_row(Group& g, const KeptBlocks& kept, const F (&rescale)[kVecs]) {
    alignas(64) float factor[kRows];
    for (int r = 0; r < kVecs; ++r) store(factor + r * kLanes, rescale[r]);
    const int64_t kv_length = p_.kv_length(item_.request);
    for (int r = g.begin; r < g.end; ++r) {
      const KeyRange keys = visible_keys(g.position + r, kv_length, p_.causal, p_.window_left);
      for (int c = 0; c < kDv; ++c) {
        float sum = g.output[c * kRows + r] * factor[r];
        for (int i = 0; i < kept.count; ++i) {
          for (int j = kept.block[i] * kBlock; j < (kept.block[i] + 1) * kBlock; ++j) {
            const int64_t key = tile_begin_ + j;
            if (key >= keys.begin && key < keys.end) sum += tile_->scores[j * kRows + r] * values_[j * kRowStride<kDv> + c];
          }
        }
        g.output[c * kRows + r] = sum;
      }
    }
  }

  /// V bytes that no group of this item needed, shared among the query heads that would have shared the read.
  void count_unread_values() {
    if (p_.counters == nullptr) return;
    int64_t bytes = 0;
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t begin = tile_begin_ + b * kBlock, end = begin + kBlock;
      const int64_t keys = (end < tile_keys_.end ? end : tile_keys_.end) - (begin > tile_keys_.begin ? begin : tile_keys_.begin);
      if (!values_read_[b] && keys > 0) bytes += keys * kDv * static_cast<int64_t>(dtype_size(p_.kv_dtype));
    }
    const int64_t share = bytes / p_.group;
    for (int h = 0; h < p_.group; ++h) {
      add_counter(counter(item_.head_kv * p_.group + h, 2), h == 0 ? bytes - share * (p_.group - 1) : share);
    }
  }

  int64_t* counter(int head, int kind) const { return p_.counters + head * p_.counters_head + kind * p_.counters_kind; }

  // --- votes ----------------------------------------------------------------------------------------------------------

  struct Reference;
  Reference make_reference(const Group& g, const F (&tile_max)[kVecs], const F (&joined)[kVecs]) const;
  F margin(const Reference& reference, int b, int r) const;
  M abstains(const Group& g, const TileMask& mask, bool partial, int b, int r) const;
  void drop_blocks(const Group& g, const TileMask& mask, bool partial, const F (&tile_max)[kVecs], const F (&joined)[kVecs],
                   KeptBlocks& kept) const;
  int64_t visible_scores(const Group& g, const TileMask& mask, bool partial, int b) const;
  void record(Group& g, const TileMask& mask, bool partial, const KeptBlocks& kept);
  void probe(Group& g, const TileMask& mask, bool partial, const F (&tile_max)[kVecs], const F (&joined)[kVecs],
             const KeptBlocks& kept);

  // --- output ---------------------------------------------------------------------------------------------------------

  void finish_group(Group& g) {
    const int64_t offset = p_.kv_length(item_.request) - p_.q_length(item_.request);
    for (int r = g.begin; r < g.end; ++r) {
      const int64_t token = p_.cu_q[item_.request] + (g.position + r - offset);
      for (int c = 0; c < kDv; ++c) row_[c] = g.output[c * kRows + r];
      write_result(p_, token, g.head, row_, g.max[r], g.sum[r]);
    }
    if (p_.counters != nullptr) {
      add_counter(counter(g.head, 0), g.visible);
      add_counter(counter(g.head, 1), g.skipped);
    }
  }

  const AttentionParams& p_;
  const PrefillItem& item_;
  TileScores* tile_ = nullptr;
  Group* groups_ = nullptr;
  int group_count_ = 0;
  float* keys_ = nullptr;    // [64][kRowStride] fp32
  float* values_ = nullptr;  // [64][kRowStride] fp32
  float* row_ = nullptr;
  float* pool_ = nullptr;
  int64_t tile_begin_ = 0;
  KeyRange tile_keys_;  // the part of the tile that exists for this item
  bool values_read_[kBlocks] = {};
  bool values_bad_[kBlocks] = {};
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
