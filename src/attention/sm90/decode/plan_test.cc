// The cut of a batch's tiles into runs and parts: nothing lost, nothing twice, equal shares.
#include "attention/sm90/decode/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "attention/sm90/decode/parts.h"
#include "attention/testing/random.h"

namespace longhaul {
namespace {

using namespace sm90;
using conformance::Random;

TEST(DecodePlan, PageQuotientIsExact) {
  Random random(1);
  for (int page_size = 16; page_size <= 256; page_size += 16) {
    const uint32_t reciprocal = page_reciprocal(page_size);
    const auto check = [&](int64_t key) {
      if (key < 0 || key > INT32_MAX) return;
      ASSERT_EQ(quotient_by_page(static_cast<int>(key), reciprocal), key / page_size) << page_size << " " << key;
    };
    for (int64_t key = 0; key < 5000; ++key) check(key);
    for (int64_t page = INT32_MAX / page_size; page > INT32_MAX / page_size - 2000; --page)
      for (int64_t away : {-17, -16, -1, 0, 1, 15, 16}) check(page * page_size + away);
    for (int i = 0; i < 20000; ++i) check(random.integer(0, INT32_MAX));
  }
}

TEST(DecodePlan, QuotientsOfAnySize) {
  for (int64_t a : {int64_t{0}, int64_t{7}, int64_t{UINT32_MAX}, int64_t{UINT32_MAX} + 1, int64_t{1} << 52})
    for (int64_t b : {int64_t{1}, int64_t{3}, int64_t{UINT32_MAX}, int64_t{1} << 40}) EXPECT_EQ(quotient(a, b), a / b);
}

TEST(DecodePlan, RunsShareOutEverythingLongerOnesFirst) {
  for (int count = 0; count < 70; ++count)
    for (int runs = 1; runs <= 8; ++runs) {
      int next = 0;
      for (int i = 0; i < runs; ++i) {
        const sm90::Run run = run_of(count, runs, i);
        EXPECT_EQ(run.first, next);
        EXPECT_GE(run.count, count / runs);
        EXPECT_LE(run.count, (count + runs - 1) / runs);
        next += run.count;
      }
      EXPECT_EQ(next, count);
    }
}

TEST(DecodePlan, EveryUnitHasOneBlockAndBlocksAreEqual) {
  for (int64_t units : {1, 2, 3, 5, 131, 132, 133, 527, 2048, 65537, 8 << 20})
    for (int multiprocessors : {1, 2, 7, 132})
      for (bool invariant : {false, true}) {
        const int blocks = decode_blocks(units, multiprocessors, invariant);
        ASSERT_GE(blocks, 1);
        ASSERT_LE(blocks, multiprocessors);
        EXPECT_EQ(decode_first_unit(units, blocks, 0), 0);
        EXPECT_EQ(decode_first_unit(units, blocks, blocks), units);
        for (int block = 0; block < blocks; ++block) {
          const int64_t begin = decode_first_unit(units, blocks, block),
                        end = decode_first_unit(units, blocks, block + 1);
          EXPECT_GE(end - begin, units / blocks);
          EXPECT_LE(end - begin, units / blocks + 1);
          for (int64_t unit : {begin, begin + (end - begin) / 2, end - 1}) {
            if (unit >= begin && unit < end) {
              EXPECT_EQ(decode_block_of(units, blocks, unit), block) << units << " " << unit;
            }
          }
        }
      }
}

TEST(DecodePlan, TilesAreThoseThatSomeRowSees) {
  EXPECT_EQ(decode_tiles(0, 100, -1).count, 0);
  EXPECT_EQ(decode_tiles(1, 0, -1).count, 0);
  for (int kv = 1; kv < 400; kv += 7)
    for (int q : {1, 2, 5, 16})
      for (int64_t window : {-1, 0, 1, 63, 64, 200, 100000}) {
        const int64_t first = window < 0 ? 0 : std::max<int64_t>(0, kv - q - window);
        const DecodeTiles tiles = decode_tiles(q, kv, window);
        EXPECT_EQ(tiles.newest, (kv - 1) / kDecodeTileKeys);
        EXPECT_EQ(tiles.newest - tiles.count + 1, first / kDecodeTileKeys) << q << " " << kv << " " << window;
      }
}

TEST(DecodePlan, WarpsForRows) {
  for (int rows = 1; rows <= kDecodeMaxRows; ++rows) {
    EXPECT_GE(16 * decode_row_warps(rows), rows);
    EXPECT_EQ(kDecodeWarps % decode_row_warps(rows), 0);
  }
}

struct Lengths {
  std::vector<int32_t> cu_q{0}, cu_kv{0};
  AttentionParams params(int heads_kv, int group, bool batch_invariant, int64_t window_left) {
    AttentionParams p;
    p.batch = static_cast<int32_t>(cu_q.size()) - 1;
    p.heads_kv = heads_kv;
    p.group = group;
    p.cu_q = cu_q.data();
    p.cu_kv = cu_kv.data();
    p.batch_invariant = batch_invariant;
    p.window_left = window_left;
    return p;
  }
  void add(int64_t q, int64_t kv) {
    cu_q.push_back(cu_q.back() + static_cast<int32_t>(q));
    cu_kv.push_back(cu_kv.back() + static_cast<int32_t>(kv));
  }
};

// Parts of a head cover its tiles once, the newest first.
void check_parts(const std::vector<KeyRange>& parts, const DecodeTiles& tiles) {
  ASSERT_EQ(parts.empty(), tiles.count == 0);
  int64_t next = int64_t{tiles.newest + 1} * kDecodeTileKeys;
  for (const KeyRange& part : parts) {
    ASSERT_FALSE(part.empty());
    ASSERT_EQ(part.end, next);
    ASSERT_EQ(part.begin % kDecodeTileKeys, 0);
    next = part.begin;
  }
  if (parts.empty()) return;
  EXPECT_EQ(next, int64_t{tiles.newest - tiles.count + 1} * kDecodeTileKeys);
}

TEST(DecodePlan, PartsCoverEveryHeadOnce) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    Lengths lengths;
    const int batch = static_cast<int>(random.integer(1, 40));
    for (int b = 0; b < batch; ++b) {
      const int64_t kv =
          random.integer(0, 3) == 0 ? random.integer(0, 70) : random.integer(0, 1 << random.integer(1, 16));
      lengths.add(random.integer(0, 4), kv);
    }
    const int heads_kv = static_cast<int>(random.integer(1, 8)), group = static_cast<int>(random.integer(1, 16));
    const bool invariant = random.integer(0, 1) == 1;
    const int64_t window = random.integer(0, 2) == 0 ? random.integer(0, 3000) : -1;
    const AttentionParams p = lengths.params(heads_kv, group, invariant, window);
    const int multiprocessors = static_cast<int>(random.integer(1, 200));
    for (int b = 0; b < batch; ++b)
      for (int h = 0; h < heads_kv; ++h) {
        const DecodeTiles tiles =
            decode_tiles(static_cast<int>(p.q_length(b)), static_cast<int>(p.kv_length(b)), window);
        check_parts(sm90_decode_parts(p, multiprocessors, b, h), tiles);
      }
  }
}

// Batch-invariant parts depend on nothing but the request.
TEST(DecodePlan, InvariantPartsAreThoseOfTheRequestAlone) {
  Random random(4);
  for (int round = 0; round < 100; ++round) {
    Lengths all, alone;
    const int64_t q = random.integer(1, 4), kv = random.integer(1, 60000);
    const int place = static_cast<int>(random.integer(0, 5));
    for (int b = 0; b < 6; ++b) b == place ? all.add(q, kv) : all.add(random.integer(0, 4), random.integer(0, 60000));
    alone.add(q, kv);
    const AttentionParams p = all.params(3, 4, true, -1), single = alone.params(1, 4, true, -1);
    EXPECT_EQ(sm90_decode_parts(p, 132, place, 2), sm90_decode_parts(single, 5, 0, 0));
  }
}

}  // namespace
}  // namespace longhaul
