// Decode, one work item: some neighbouring KV heads of a request over one part of its keys, tile by tile, newest first.
//
// Memory-bound: every key byte is read once, every value byte of a kept block once, and the aim is that the memory
// never rests. A step scores one tile and adds the values of the tile before it, so that the value rows, which only the
// vote selects, can be fetched while scores are computed, and the next key rows while values are added. Whole rows of
// the cache, all heads of the item side by side, are fetched in order; item_heads.h says what that is worth.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

/// Chooses, for each row being used, a row to fetch: whole rows, all heads of the item side by side, in order.
template <class T>
class DecodeFetch {
 public:
  DecodeFetch(const AttentionParams& p, int heads)
      : p_(p), heads_(heads), key_bytes_(heads * p.d * sizeof(T)), value_bytes_(p.dv * sizeof(T)) {}

  /// `pending_values`: the tile whose values are to be added; `next_keys`: the tile after the one at hand. Either may
  /// be null.
  void plan(const TileRows<T>* pending_values, const TileRows<T>* next_keys, DecodeHead<T>* const* head) {
    values_ = pending_values;
    next_keys_ = next_keys;
    row_ = 0;
    wait_ = 0;
    for (int b = 0; b < kBlocks; ++b) {
      kept_by_all_[b] = values_ != nullptr;
      for (int h = 0; h < heads_; ++h) {
        kept_[b][h] = values_ != nullptr && head[h]->pending().any && head[h]->pending().kept[b];
        kept_by_all_[b] = kept_by_all_[b] && kept_[b][h];
      }
    }
  }

  // These must be inlined: g++ takes a function that only prefetches for one without effects and drops the call.

  /// Some head uses a key: every heads-th time a row of kept values, and of the next keys where no value row gives the
  /// occasion.
  __attribute__((always_inline)) void while_scoring() {
    if (--wait_ >= 0) return;
    wait_ = heads_ - 1;
    const int row = row_++, b = row / kBlock;
    if (kept_by_all_[b]) return fetch(values_->row[row], value_bytes_ * heads_);
    for (int h = 0; h < heads_; ++h) {
      if (kept_[b][h]) fetch(values_->row[row] + h * p_.v_head, value_bytes_);
    }
    if (next_keys_ != nullptr) fetch(next_keys_->row[row], key_bytes_);
  }

  /// Head h uses values of block b in one of its passes over the columns: its turn of the next key rows.
  __attribute__((always_inline)) void while_adding(int h, int b, int pass, int passes) const {
    if (!kept_by_all_[b] || next_keys_ == nullptr) return;
    const int turn = h * passes + pass, turns = heads_ * passes;
    for (int j = kBlock * turn / turns; j < kBlock * (turn + 1) / turns; ++j)
      fetch(next_keys_->row[b * kBlock + j], key_bytes_);
  }

 private:
  /// Into the second-level cache: through the first, the few outstanding misses it allows held decode to 7.7 GB/s a
  /// core instead of 9.7 on the Xeon measured.
  __attribute__((always_inline)) static void fetch(const T* row, size_t bytes) {
    const char* line = reinterpret_cast<const char*>(row);
    for (size_t b = 0; b < bytes; b += kCacheLine) __builtin_prefetch(line + b, 0, 2);
  }

  const AttentionParams& p_;
  int heads_;
  size_t key_bytes_, value_bytes_;  // of a row: all heads' keys, one head's values
  const TileRows<T>* values_ = nullptr;
  const TileRows<T>* next_keys_ = nullptr;
  int row_ = 0;   // next to fetch while scoring
  int wait_ = 0;  // keys to use before that
  bool kept_[kBlocks][kMaxItemHeads] = {};
  bool kept_by_all_[kBlocks] = {};
};

template <class T>
class DecodeRun {
 public:
  DecodeRun(const AttentionParams& p, const DecodeItem& item, char* scratch)
      : p_(p), item_(item), heads_(item.head_end - item.head_begin), fetch_(p, heads_) {
    const int rows = static_cast<int>(p.q_length(item.request)) * p.group;
    for (int h = 0; h < heads_; ++h) {
      head_[h] =
          new (scratch) DecodeHead<T>(p, item, item.head_begin + h, reinterpret_cast<float*>(scratch + kHeadBytes));
      scratch += head_bytes(p, rows);
    }
  }

  static int64_t scratch_bytes(const AttentionParams& p, int rows) {
    return decode_item_heads(p) * head_bytes(p, rows);
  }

  void run() {
    if (!item_.newest_tile.empty()) locate_keys(keys_[0], item_.newest_tile);
    for (int h = 0; h < heads_; ++h) head_[h]->start(item_.newest_tile.empty() ? nullptr : &keys_[0]);
    if (!item_.keys.empty()) visit_tiles();
    for (int h = 0; h < heads_; ++h) head_[h]->finish();
  }

 private:
  static constexpr int64_t kHeadBytes = (sizeof(DecodeHead<T>) + 63) / 64 * 64;
  static int64_t head_bytes(const AttentionParams& p, int rows) {
    return kHeadBytes + DecodeHead<T>::scratch_floats(p, rows) * static_cast<int64_t>(sizeof(float));
  }

  void visit_tiles() {
    const int64_t newest = (item_.keys.end - 1) / kTile, oldest = item_.keys.begin / kTile;
    TileRows<T>*keys = &keys_[0], *next_keys = &keys_[1];
    locate_keys(*keys, clip(newest));
    bool pending = false;  // values_ is the tile before, and some head kept some of it
    for (int64_t tile = newest; tile >= oldest; --tile) {
      const bool more = tile > oldest;
      if (more) locate_keys(*next_keys, clip(tile - 1));
      fetch_.plan(pending ? &values_ : nullptr, more ? next_keys : nullptr, head_);
      for (int h = 0; h < heads_; ++h) head_[h]->score(*keys, fetch_);
      for (int h = 0; h < heads_; ++h) head_[h]->add_values(values_, fetch_);
      pending = false;
      const bool always = tile == newest && item_.newest_tile.empty();
      for (int h = 0; h < heads_; ++h) {
        head_[h]->weigh(*keys, always);
        pending = pending || head_[h]->pending().any;
      }
      if (pending) locate(values_, p_.v, p_.v_page, p_.v_token, p_.v_head, keys->keys);
      std::swap(keys, next_keys);
    }
    fetch_.plan(nullptr, nullptr, head_);
    for (int h = 0; h < heads_; ++h) head_[h]->add_values(values_, fetch_);
  }

  KeyRange clip(int64_t tile) const {
    const int64_t begin = tile * kTile, end = begin + kTile;
    return {item_.keys.begin > begin ? item_.keys.begin : begin, item_.keys.end < end ? item_.keys.end : end};
  }

  void locate_keys(TileRows<T>& tile, KeyRange keys) const {
    locate(tile, p_.k, p_.k_page, p_.k_token, p_.k_head, keys);
  }

  /// Fills in the rows of the tile that holds `keys`; walks the page table once per page.
  void locate(TileRows<T>& tile, const void* data, int64_t page_stride, int64_t token_stride, int64_t head_stride,
              KeyRange keys) const {
    tile.keys = keys;
    tile.begin = keys.begin / kTile * kTile;
    const T* base = static_cast<const T*>(data) + item_.head_begin * head_stride;
    const T** to = tile.row + tile.low();
    if (p_.page_size == 0) {
      const T* at = base + (p_.cu_kv[item_.request] + keys.begin) * token_stride;
      for (int64_t t = keys.begin; t < keys.end; ++t, at += token_stride) *to++ = at;
    } else {
      const int32_t* table = p_.page_table + item_.request * p_.page_table_request;
      for (int64_t t = keys.begin; t < keys.end;) {
        const int64_t page = t / p_.page_size, page_end = (page + 1) * p_.page_size;
        const T* at = base + table[page] * page_stride + (t - page * p_.page_size) * token_stride;
        for (; t < keys.end && t < page_end; ++t, at += token_stride) *to++ = at;
      }
    }
    const T* inside = tile.row[tile.low()];
    for (int j = 0; j < tile.low(); ++j) tile.row[j] = inside;
    for (int j = tile.high(); j < kTile; ++j) tile.row[j] = inside;
  }

  const AttentionParams& p_;
  const DecodeItem& item_;
  int heads_;
  DecodeFetch<T> fetch_;
  DecodeHead<T>* head_[kMaxItemHeads];
  TileRows<T> keys_[2], values_;
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
