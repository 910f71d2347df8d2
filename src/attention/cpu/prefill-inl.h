// Prefill, one work item: the query heads of a KV head over prefill_item_positions() positions, key tiles newest first.
//
// Rows lie in the vector lanes: scores are S[key][row], so row maxima, exponentials, sums and votes need no operation
// across lanes, keys and values are read as they lie (one scalar broadcast per FMA column), and a block of 16 keys can
// be left out of P.V without disturbing the rest. A voting group is 16 rows x 16 keys. Scores are kept in log2 units.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

/// Everything that lives while one item runs; memory comes from the caller's workspace.
template <int kD, int kDv, Mode kMode>
class PrefillRun {
 public:
  using P = Products<kD, kDv>;

  PrefillRun(const AttentionParams& p, const PrefillItem& item, float* scratch)
      : p_(p),
        item_(item),
        tile_rows_{p, item},
        next_tile_{p, item},
        products_(scratch + P::kTogether * sizeof(TileScores) / sizeof(float)) {
    lay_out(scratch);
  }

  static size_t scratch_floats(const AttentionParams& p) {
    const size_t groups = max_groups(p);
    const size_t group_floats = P::kQueryFloats + P::kPendingFloats +
                                (kDv + (kMode == Mode::probe ? kMaxProbes : 0)) * kRows + sizeof(Group) / sizeof(float);
    return P::kScratchFloats + P::kTogether * sizeof(TileScores) / sizeof(float) + groups * group_floats + kDv + kD;
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
    if constexpr (P::kScoresAhead) flush_groups();
    for (int g = 0; g < group_count_; ++g) finish_group(groups_[g]);
  }

 private:
  static size_t max_groups(const AttentionParams& p) {
    return static_cast<size_t>(p.group) * (prefill_item_positions(p.group, P::kItemRows) / kRows);
  }

  void lay_out(float* scratch) {
    tiles_ = reinterpret_cast<TileScores*>(scratch);
    scratch += P::kTogether * sizeof(TileScores) / sizeof(float) + P::kScratchFloats;
    groups_ = reinterpret_cast<Group*>(scratch);
    scratch += max_groups(p_) * sizeof(Group) / sizeof(float);
    row_ = scratch;
    pool_ = scratch + kD + kDv;
  }

  // --- groups ---

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
        g.output = pool + P::kQueryFloats;
        g.pending = g.output + kDv * kRows;
        pool = g.pending + P::kPendingFloats;
        P::start_group(g);
        if constexpr (kMode == Mode::probe) {
          g.probe_skipped = p_.probe_skipped + static_cast<int64_t>(head) * p_.probes;
          g.probe_sum = pool;
          for (int i = 0; i < p_.probes * kRows; ++i) g.probe_sum[i] = 0;
          pool += kMaxProbes * kRows;
        }
        for (int r = 0; r < kRows; ++r) {
          g.max[r] = g.base[r] = -kInfinity;
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
    g.scale = p_.scale * p_.q_scale_of(g.head) * p_.k_scale_of(item_.head_kv) *
              (p_.soft_cap > 0 ? 1.0F / p_.soft_cap : kLog2E);
    for (int r = 0; r < kRows; ++r) {
      if (g.row_exists(r)) {
        const int64_t token = p_.cu_q[item_.request] + (g.position + r - offset);
        read_row(p_.q, p_.q_dtype, token * p_.q_token + g.head * p_.q_head, kD, row_);
      }
      P::put_query(g.query, r, g.row_exists(r) ? row_ : nullptr, g.scale);
    }
  }

  // --- one tile ---

  void visit_tile(int64_t tile, KeyRange keys) {
    const int64_t begin = tile * kTile;
    tile_keys_ = {begin > keys.begin ? begin : keys.begin, begin + kTile < keys.end ? begin + kTile : keys.end};
    tile_begin_ = begin;
    tile_rows_.begin = begin;
    tile_rows_.keys = tile_keys_;
    next_tile_.begin = begin - kTile;
    next_tile_.keys = {begin - kTile > keys.begin ? begin - kTile : keys.begin, begin};
    products_.read_keys(tile_rows_);
    if constexpr (P::kScoresAhead) {
      visit_groups_ahead();
    } else {
      visit_groups();
    }
    if constexpr (kMode == Mode::skip) count_unread_values();
  }

  void visit_groups() {
    Group* waiting[P::kTogether];
    int count = 0;
    for (int g = 0; g < group_count_; ++g) {
      if (!sees_tile(groups_[g])) continue;
      waiting[count++] = &groups_[g];
      if (count == P::kTogether) {
        visit<P::kTogether>(waiting);
        count = 0;
      }
    }
    for (int i = 0; i < count; ++i) {
      Group* alone[1] = {waiting[i]};
      visit<1>(alone);
    }
  }

  template <int kG>
  void visit(Group* const (&g)[kG]) {
    const float* query[kG];
    float* scores[kG];
    for (int i = 0; i < kG; ++i) {
      query[i] = g[i]->query;
      scores[i] = tiles_[i].scores;
    }
    products_.template score<kG>(query, scores);
    for (int i = 0; i < kG; ++i) join(*g[i], tiles_[i]);
  }

  /// Each group's weights are computed beside the next group's scores. All groups share the work of fetching the next
  /// tile's keys and values.
  void visit_groups_ahead() {
    Group* group = group_at(0);
    if (group != nullptr) products_.start_scores(group->query, tiles_[0].scores);
    products_.finish_scores();
    for (int turn = 0; group != nullptr; turn = 1 - turn) {
      const int index = static_cast<int>(group - groups_);
      Group* next = group_at(index + 1);
      if (next != nullptr) products_.start_scores(next->query, tiles_[1 - turn].scores);
      products_.fetch(next_tile_, index, group_count_);
      join(*group, tiles_[turn]);
      products_.finish_scores();
      group = next;
    }
    if (products_.must_flush()) flush_groups();
  }

  void flush_groups() {
    for (int g = 0; g < group_count_; ++g) products_.flush(groups_[g]);
  }

  /// The first group from `index` on that sees the tile, or null.
  Group* group_at(int index) const {
    while (index < group_count_ && !sees_tile(groups_[index])) ++index;
    return index < group_count_ ? groups_ + index : nullptr;
  }
  bool sees_tile(const Group& g) const { return g.keys.begin < tile_keys_.end && g.keys.end > tile_keys_.begin; }

  /// Turns a group's scores into weights and adds its part of the tile.
  void join(Group& g, TileScores& tile) {
    Addend addend;
    weigh(g, tile, addend);
    if (addend.kept.count == 0) return;  // nothing of this tile joins the result
    if (products_.read_values(g, tile_rows_, addend)) {
      add_values_row_by_row(g, addend);
    } else {
      products_.add(g, addend);
    }
  }

  /// Votes, then turns the scores of the kept blocks into weights; what is left to add comes out in `addend`.
  void weigh(Group& g, TileScores& tile, Addend& addend) {
    tile_ = &tile;
    F scale = set1(1.0F);  // still to be applied
    if constexpr (P::kLateScale) scale = scale_scores(g);
    if (p_.soft_cap > 0) cap_scores();
    TileMask mask;
    const bool partial = make_mask(g, mask);
    if (partial) {
      statistics<true>(mask, scale);
    } else {
      statistics<false>(mask, scale);
    }
    F tile_max[kVecs], joined[kVecs];
    for (int r = 0; r < kVecs; ++r) {
      F m = load(tile_->block_max[0] + r * kLanes);
      for (int b = 1; b < kBlocks; ++b) m = max(load(tile_->block_max[b] + r * kLanes), m);
      tile_max[r] = m;
      joined[r] = max(m, load(g.max + r * kLanes));
    }
    KeptBlocks& kept = addend.kept;
    for (int b = kBlocks - 1; b >= 0; --b) {
      if (block_visible(g, b)) kept.block[kept.count++] = b;
    }
    if constexpr (kMode == Mode::skip) {
      if (!g.first) drop_blocks(g, mask, partial, tile_max, joined, kept);
    }
    record(g, mask, partial, kept);
    addend.output = g.output;
    if constexpr (kMode == Mode::probe) {
      probe(g, mask, partial, tile_max, joined, scale, addend);
    } else if (kept.count > 0) {
      weigh_kept(g, joined, scale, addend);
    }
    g.first = false;
  }

  bool block_visible(const Group& g, int b) const {
    const int64_t begin = tile_begin_ + b * kBlock;
    return g.keys.begin < begin + kBlock && g.keys.end > begin && begin < tile_keys_.end &&
           begin + kBlock > tile_keys_.begin;
  }

  /// Scores that come out as q.k, unscaled: applied now where a soft cap follows, otherwise left to the statistics and
  /// the weights. A scale that vanishes cannot be left: it would turn the -inf of a masked score into NaN.
  F scale_scores(const Group& g) {
    if (p_.soft_cap == 0 && g.scale >= 1e-30F) return set1(g.scale);
    for (int i = 0; i < kTile * kRows; i += kLanes) store(tile_->scores + i, load(tile_->scores + i) * set1(g.scale));
    return set1(1.0F);
  }

  void cap_scores() {
    const F to_log2 = set1(p_.soft_cap * kLog2E);
    for (int i = 0; i < kTile * kRows; i += kLanes) store(tile_->scores + i, tanh(load(tile_->scores + i)) * to_log2);
  }

  /// Fills `mask`; false when every row that exists sees the whole tile (then only the mask's rows that do not exist
  /// matter).
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
      mask.high[r] = clamp_to_tile(LONGHAUL_MUTATE(1, keys.end, keys.end + 1) - tile_begin_);
    }
    return true;
  }

  static float clamp_to_tile(int64_t key) { return static_cast<float>(key < 0 ? 0 : key > kTile ? kTile : key); }

  /// Masks the scores; block maxima; in skip and probe mode, where a visible score is not finite.
  template <bool kPartial>
  void statistics(const TileMask& mask, F scale) {
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
            const M visible =
                operator_and(less_equal(load(mask.low + r * kLanes), key), less(key, load(mask.high + r * kLanes)));
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
        if constexpr (P::kLateScale) block_max[r] = block_max[r] * scale;
        store(tile_->block_max[b] + r * kLanes, block_max[r]);
        if constexpr (kMode != Mode::dense) store(tile_->block_bad[b] + r * kLanes, bad[r]);
      }
    }
  }

  /// Turns the kept blocks' scores into weights and joins their sum and maximum.
  void weigh_kept(Group& g, const F (&joined)[kVecs], F scale, Addend& addend) {
    F base[kVecs], sum[kVecs];
    for (int r = 0; r < kVecs; ++r) {
      const F before = load(g.base + r * kLanes), next = P::next_base(before, joined[r]);
      // A row that has seen nothing has maximum -inf: any finite base gives it weights of 0.
      base[r] = select(less_equal(next, set1(-kInfinity)), zero(), next);
      addend.rescale[r] = LONGHAUL_MUTATE(2, exp2(before - base[r]), set1(1.0F));
      sum[r] = load(g.sum + r * kLanes) * addend.rescale[r];
      store(g.max + r * kLanes, joined[r]);
      store(g.base + r * kLanes, next);
    }
    products_.template weigh<kMode == Mode::probe>(g, addend, tile_->scores, scale, base, sum);
    for (int r = 0; r < kVecs; ++r) store(g.sum + r * kLanes, sum[r]);
  }

  // --- values
  // ---------------------------------------------------------------------------------------------------------

  /// A weight of 0 times a value that is not finite is NaN: rows that do not see that key must not meet it.
  void add_values_row_by_row(Group& g, const Addend& addend) {
    alignas(64) float factor[kRows];
    for (int r = 0; r < kVecs; ++r) store(factor + r * kLanes, addend.rescale[r]);
    const int64_t kv_length = p_.kv_length(item_.request);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kDv; ++c) g.output[P::output_index(r, c)] *= factor[r];
    }
    for (int i = 0; i < addend.kept.count; ++i) {
      const int first = addend.kept.block[i] * kBlock;
      for (int j = first; j < first + kBlock; ++j) {
        const float* value = products_.value_row(tile_rows_, j);
        for (int r = g.begin; r < g.end; ++r) {
          const KeyRange keys = visible_keys(g.position + r, kv_length, p_.causal, p_.window_left);
          if (tile_begin_ + j < keys.begin || tile_begin_ + j >= keys.end) continue;
          const float weight = products_.weight(g, addend, j, r);
          for (int c = 0; c < kDv; ++c) g.output[P::output_index(r, c)] += weight * value[c];
        }
      }
    }
  }

  /// V bytes that no group of this item needed, shared among the query heads that would have shared the read.
  void count_unread_values() {
    if (p_.counters == nullptr) return;
    int64_t bytes = 0;
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t begin = tile_begin_ + b * kBlock, end = begin + kBlock;
      const int64_t keys =
          (end < tile_keys_.end ? end : tile_keys_.end) - (begin > tile_keys_.begin ? begin : tile_keys_.begin);
      if (!products_.values_read(b) && keys > 0) bytes += keys * kDv * static_cast<int64_t>(dtype_size(p_.kv_dtype));
    }
    const int64_t share = bytes / p_.group;
    for (int h = 0; h < p_.group; ++h) {
      add_counter(counter(item_.head_kv * p_.group + h, 2), h == 0 ? bytes - share * (p_.group - 1) : share);
    }
  }

  int64_t* counter(int head, int kind) const { return p_.counters + head * p_.counters_head + kind * p_.counters_kind; }

  // --- votes ---

  struct Reference;
  Reference make_reference(const Group& g, const F (&tile_max)[kVecs], const F (&joined)[kVecs]) const;
  F margin(const Reference& reference, int b, int r) const;
  M abstains(const Group& g, const TileMask& mask, bool partial, int b, int r) const;
  void drop_blocks(const Group& g, const TileMask& mask, bool partial, const F (&tile_max)[kVecs],
                   const F (&joined)[kVecs], KeptBlocks& kept) const;
  int64_t visible_scores(const Group& g, const TileMask& mask, bool partial, int b) const;
  void record(Group& g, const TileMask& mask, bool partial, const KeptBlocks& kept);
  void probe(Group& g, const TileMask& mask, bool partial, const F (&tile_max)[kVecs], const F (&joined)[kVecs],
             F scale, Addend& addend);

  // --- output ---

  void finish_group(Group& g) {
    const int64_t offset = p_.kv_length(item_.request) - p_.q_length(item_.request);
    for (int r = g.begin; r < g.end; ++r) {
      const int64_t token = p_.cu_q[item_.request] + (g.position + r - offset);
      for (int c = 0; c < kDv; ++c) row_[c] = g.output[P::output_index(r, c)];
      write_result(p_, token, g.head, row_, g.base[r], g.sum[r]);
    }
    if (p_.counters != nullptr) {
      add_counter(counter(g.head, 0), g.visible);
      add_counter(counter(g.head, 1), g.skipped);
    }
  }

  const AttentionParams& p_;
  const PrefillItem& item_;
  PrefillTile tile_rows_, next_tile_;
  P products_;
  TileScores* tiles_ = nullptr;  // [kTogether]
  TileScores* tile_ = nullptr;   // of the group at hand
  Group* groups_ = nullptr;
  int group_count_ = 0;
  float* row_ = nullptr;
  float* pool_ = nullptr;
  int64_t tile_begin_ = 0;
  KeyRange tile_keys_;  // the part of the tile that exists for this item
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
