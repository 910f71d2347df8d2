// Same inputs, same bits: whatever the threads, the layout, the chunks and the company in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/testing/attention_case.h"
#include "attention/testing/on_every_isa.h"
#include "attention/testing/workspace.h"

namespace longhaul {
namespace {

using namespace conformance;

struct Bits {
  explicit Bits(const AttentionCase& test)
      : output(test.output.elements()),
        lse(test.lse.elements()),
        counters(test.counters.elements()),
        mask(test.skip_mask.elements()) {}
  bool operator==(const Bits&) const = default;
  std::vector<uint8_t> output, lse, counters, mask;
};

TEST_P(OnEveryIsa, AnyNumberOfThreads) {
  for (uint64_t seed = 1; seed <= seeds(8); ++seed) {
    AttentionCase test(random_spec(seed));
    test.args.threads = 1;
    test.run();
    const Bits one(test);
    for (int threads : {2, 3, 8}) {
      test.args.threads = threads;
      test.run();
      ASSERT_TRUE(Bits(test) == one) << threads << " threads: " << test.spec.describe();
    }
  }
}

TEST_P(OnEveryIsa, PagedEqualsRagged) {
  for (uint64_t seed = 1; seed <= seeds(8); ++seed) {
    CaseSpec spec = random_spec(seed);
    spec.layout = Layout::tokens_first;
    AttentionCase ragged(spec);
    ragged.run();
    for (auto [layout, page] : {std::pair{Layout::paged_nhd, 16},
                                {Layout::paged_hnd, 48},
                                {Layout::paged_pool, 64},
                                {Layout::paged_nhd, 256}}) {
      spec.layout = layout;
      spec.page_size = page;
      AttentionCase paged(spec);
      paged.run();
      ASSERT_TRUE(Bits(paged) == Bits(ragged)) << paged.spec.describe();
    }
    for (Layout layout : {Layout::heads_first, Layout::padded}) {
      spec.layout = layout;
      AttentionCase other(spec);
      other.run();
      ASSERT_TRUE(Bits(other) == Bits(ragged)) << other.spec.describe();
    }
  }
}

// A call on query tokens [begin, end) of one request of a ragged case, with the first kv_length of its keys.
struct Part {
  std::vector<int32_t> cu_q, cu_kv;
  std::vector<uint8_t> output, workspace;
  std::vector<float> lse;

  Part(const AttentionCase& test, size_t request, int64_t begin, int64_t end, int64_t kv_length) {
    AttentionArgs args = test.args;
    int64_t q_first = begin, kv_first = 0;
    for (size_t b = 0; b < request; ++b) q_first += test.q_lengths[b], kv_first += test.kv_lengths[b];
    const auto from = [](TensorView view, int64_t first, int64_t count) {
      view.data = static_cast<char*>(view.data) + first * view.stride[0] * static_cast<int64_t>(dtype_size(view.dtype));
      view.shape[0] = count;
      return view;
    };
    const int64_t n = end - begin, heads = test.heads_q(), dv = test.spec.dv();
    args.query = from(args.query, q_first, n);
    args.key = from(args.key, kv_first, kv_length);
    args.value = from(args.value, kv_first, kv_length);
    cu_q = {0, static_cast<int32_t>(n)};
    cu_kv = {0, static_cast<int32_t>(kv_length)};
    args.cu_seqlens_q = TensorView(cu_q.data(), DType::i32, {2});
    args.cu_seqlens_kv = TensorView(cu_kv.data(), DType::i32, {2});
    output.resize(n * heads * dv * dtype_size(test.spec.output));
    lse.resize(n * heads);
    args.output = TensorView(output.data(), test.spec.output, {n, heads, dv});
    args.lse = TensorView(lse.data(), DType::f32, {heads, n});
    if (args.lambda.kind == Lambda::Kind::per_head)
      args.lambda.values = from(args.lambda.values, static_cast<int64_t>(request), 1);
    args.counters = args.skip_mask = {};
    give_workspace(args, test.spec.phase, workspace);
    attention(args, test.spec.phase);
  }

  // Whether the part's rows are those of the whole call, bit for bit.
  ::testing::AssertionResult equals(const AttentionCase& test, int64_t q_first) const {
    const int64_t heads = test.heads_q(), dv = test.spec.dv(), n = cu_q[1];
    const std::vector<uint8_t> all = test.output.elements(), all_lse = test.lse.elements();
    const size_t row = heads * dv * dtype_size(test.spec.output);
    if (n > 0 && std::memcmp(all.data() + q_first * row, output.data(), n * row) != 0)
      return ::testing::AssertionFailure() << "output differs: " << test.spec.describe();
    for (int64_t h = 0; h < heads; ++h)
      if (n > 0 && std::memcmp(all_lse.data() + (h * test.total_q + q_first) * 4, lse.data() + h * n, n * 4) != 0)
        return ::testing::AssertionFailure() << "lse differs: " << test.spec.describe();
    return ::testing::AssertionSuccess();
  }
};

TEST_P(OnEveryIsa, ChunkedPrefillEqualsOneShot) {
  for (uint64_t seed = 1; seed <= seeds(8); ++seed) {
    CaseSpec spec = random_spec(seed);
    spec.phase = Phase::prefill;
    spec.batch_invariant = false;
    spec.long_keys = 0;
    spec.layout = Layout::tokens_first;
    spec.lengths = Lengths::single;
    if (spec.masking == Masking::full) spec.masking = Masking::causal;  // full attention sees keys of later chunks
    if (spec.masking == Masking::full_window) spec.masking = Masking::causal_window;
    AttentionCase test(spec);
    test.run();
    const int64_t n = test.q_lengths[0], group = attention_geometry(test.args, Phase::prefill).group_rows;
    for (int64_t chunk : {group, 3 * group, 5 * group})
      for (int64_t begin = 0; begin < n; begin += chunk) {
        const int64_t end = std::min(begin + chunk, n);
        ASSERT_TRUE(Part(test, 0, begin, end, end).equals(test, begin)) << "chunk of " << chunk << " at " << begin;
      }
  }
}

TEST_P(OnEveryIsa, BatchInvariant) {
  for (uint64_t seed = 1; seed <= seeds(8); ++seed) {
    for (Phase phase : {Phase::prefill, Phase::decode}) {
      CaseSpec spec = random_spec(seed);
      spec.phase = phase;
      spec.batch_invariant = true;  // prefill always is
      spec.long_keys = phase == Phase::decode ? 9000 : 0;
      spec.layout = Layout::tokens_first;
      spec.lengths = seed % 2 == 0 ? Lengths::ragged : Lengths::extreme;
      AttentionCase test(spec);
      test.run();
      int64_t q_first = 0;
      for (size_t b = 0; b < test.q_lengths.size(); q_first += test.q_lengths[b++])
        ASSERT_TRUE(Part(test, b, 0, test.q_lengths[b], test.kv_lengths[b]).equals(test, q_first)) << "request " << b;
    }
  }
}

TEST(Concurrency, CallsFromManyThreads) {
  constexpr int kCallers = 6;
  std::vector<AttentionCase> cases;
  std::vector<Bits> alone;
  for (int i = 0; i < kCallers; ++i) {
    cases.emplace_back(random_spec(100 + i));
    cases.back().run();
    alone.emplace_back(cases.back());
  }
  std::vector<int> wrong(kCallers, 0);
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i)
    callers.emplace_back([&, i] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        cases[i].run();
        wrong[i] += Bits(cases[i]) == alone[i] ? 0 : 1;
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < kCallers; ++i) EXPECT_EQ(wrong[i], 0) << cases[i].spec.describe();
}

}  // namespace
}  // namespace longhaul
