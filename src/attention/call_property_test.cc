// The call itself: workspace, nothing to do, refusals that leave the results untouched.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/testing/attention_case.h"
#include "attention/testing/score_case.h"
#include "attention/testing/workspace.h"
#include "core/cpu_features.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using namespace conformance;

class InPhase : public ::testing::TestWithParam<Phase> {};
INSTANTIATE_TEST_SUITE_P(Phase, InPhase, ::testing::Values(Phase::prefill, Phase::decode), [](const auto& phase) {
  return std::string(phase.param == Phase::prefill ? "prefill" : "decode");
});

std::string message_of(const AttentionArgs& args, Phase phase) {
  try {
    attention(args, phase);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST_P(InPhase, WorkspaceMustFit) {
  ScoreCase test({1, 2, 3}, 2, 2, 1, GetParam());
  std::vector<uint8_t> memory;
  give_workspace(test.args, GetParam(), memory);
  ASSERT_GT(test.args.workspace_bytes, 0U);
  const AttentionArgs good = test.args;
  test.output.assign(test.output.size(), 77);

  AttentionArgs args = good;
  args.workspace = nullptr;
  EXPECT_NE(message_of(args, GetParam()).find("workspace is null"), std::string::npos);
  args = good;
  args.workspace_bytes = good.workspace_bytes - 1;
  EXPECT_NE(message_of(args, GetParam()).find("workspace_bytes is " + std::to_string(good.workspace_bytes - 1)),
            std::string::npos);
  args = good;
  args.workspace = static_cast<char*>(good.workspace) + 4;
  EXPECT_NE(message_of(args, GetParam()).find("aligned to 64"), std::string::npos);
  args = good;
  args.lambda = Lambda::scalar(2);
  EXPECT_NE(message_of(args, GetParam()).find("lambda is 2"), std::string::npos);

  EXPECT_EQ(test.output, std::vector<float>(test.output.size(), 77));  // refused before anything was written
  EXPECT_EQ(message_of(good, GetParam()), "accepted");
  EXPECT_NE(test.output[0], 77);
}

TEST_P(InPhase, WorkspaceIsEnoughToTheLastByte) {
  constexpr size_t kMargin = 256;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    CaseSpec spec = random_spec(seed);
    if (spec.phase != GetParam()) continue;
    for (const Isa isa : testable_isas()) {
      const ScopedIsa scoped(isa);
      AttentionCase test(spec);
      const size_t bytes = attention_workspace_bytes(test.args, spec.phase);
      std::vector<uint8_t> memory(bytes + kMargin + 64, 0x5c);
      uint8_t* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
      test.args.workspace = at;
      test.args.workspace_bytes = bytes;
      attention(test.args, spec.phase);
      for (size_t i = 0; i < kMargin; ++i) ASSERT_EQ(at[bytes + i], 0x5c) << isa_name(isa) << ": " << spec.describe();
    }
  }
}

TEST(Call, PrefillWorkspaceDoesNotGrowWithTheSequence) {
  std::vector<float> few(100, 0.0F), many(5000, 0.0F);
  EXPECT_EQ(attention_workspace_bytes(ScoreCase(few, 64).args, Phase::prefill),
            attention_workspace_bytes(ScoreCase(many, 4000).args, Phase::prefill));
}

TEST_P(InPhase, NothingToDo) {
  std::vector<int32_t> none{0}, three_empty{0, 0, 0, 0};
  std::vector<uint8_t> workspace;
  std::vector<int64_t> counters(8, 5);
  for (std::vector<int32_t>* cu : {&none, &three_empty}) {
    AttentionArgs args;
    args.query = TensorView(nullptr, DType::bf16, {0, 2, 64});
    args.output = args.query;
    args.key = args.value = TensorView(nullptr, DType::bf16, {0, 2, 64});
    args.cu_seqlens_q = args.cu_seqlens_kv = TensorView(cu->data(), DType::i32, {static_cast<int64_t>(cu->size())});
    args.counters = TensorView(counters.data(), DType::i64, {2, 4});
    args.lambda = Lambda::scalar(0.5F);
    const SkipMaskShape shape = skip_mask_shape(args, GetParam());
    EXPECT_EQ(shape.blocks, 0);
    args.skip_mask = TensorView(nullptr, DType::u8, {shape.voting_heads, shape.groups, shape.blocks});
    give_workspace(args, GetParam(), workspace);
    EXPECT_NO_THROW(attention(args, GetParam()));
  }
  EXPECT_EQ(counters, std::vector<int64_t>(8, 5));  // nothing was added
}

TEST_P(InPhase, QueriesWithoutKeysGiveZeros) {
  ScoreCase test({}, 3, 2, 1, GetParam());
  test.args.key.data = test.args.value.data = nullptr;
  test.output.assign(test.output.size(), 77);
  test.run();
  EXPECT_EQ(test.output, std::vector<float>(test.output.size(), 0));
  for (float lse : test.lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
}

// New threads fail while this lives: their stacks find no room in the address space.
class NoNewThreads {
 public:
  NoNewThreads() {
    getrlimit(RLIMIT_AS, &before_);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (int64_t{32} << 20));
    setrlimit(RLIMIT_AS, &limit);
  }
  ~NoNewThreads() { setrlimit(RLIMIT_AS, &before_); }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  rlimit before_{};
};

// Why the test below cannot take the threads away here, or nullptr.
const char* threads_cannot_fail() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "sanitizers need the address space themselves";
#else
  return std::getenv("LONGHAUL_TEST_EMULATED") != nullptr ? "qemu-user ignores limits of the address space" : nullptr;
#endif
}

TEST_P(InPhase, NothingIsWrittenWhereThreadsCannotBeStarted) {
  if (const char* reason = threads_cannot_fail()) GTEST_SKIP() << reason;
  // More items than other tests may have started workers for.
  const int heads = GetParam() == Phase::prefill ? 256 : 1024;
  ScoreCase test(std::vector<float>(20, 0.0F), 1, heads, heads, GetParam());
  test.run();  // one thread a core
  test.args.threads = 256;
  std::vector<uint8_t> workspace;
  give_workspace(test.args, GetParam(), workspace);
  test.output.assign(test.output.size(), 77);
  test.lse.assign(test.lse.size(), 77);
  test.counters.assign(test.counters.size(), 77);
  test.skip_mask.assign(test.skip_mask.size(), 77);
  std::string message = "accepted";
  {
    const NoNewThreads limit;
    try {
      attention(test.args, GetParam());
    } catch (const System& error) {
      message = error.what();
    }
  }
  EXPECT_NE(message.find("cannot be started"), std::string::npos) << message;
  EXPECT_EQ(test.output, std::vector<float>(test.output.size(), 77));
  EXPECT_EQ(test.lse, std::vector<float>(test.lse.size(), 77));
  EXPECT_EQ(test.counters, std::vector<int64_t>(test.counters.size(), 77));
  EXPECT_EQ(test.skip_mask, std::vector<uint8_t>(test.skip_mask.size(), 77));
  test.args.threads = 4;
  EXPECT_NO_THROW(attention(test.args, GetParam()));
  EXPECT_EQ(test.skip_mask, std::vector<uint8_t>(test.skip_mask.size(), 1));
}

TEST_P(InPhase, ResultsOverInputsAreRefused) {
  ScoreCase test(std::vector<float>(40, 0.0F), 4, 2, 2, GetParam());
  test.run();
  const AttentionArgs good = test.args;
  const auto refused = [&](TensorView AttentionArgs::* result, const char* name, TensorView AttentionArgs::* input,
                           const char* input_name) {
    AttentionArgs args = good;
    // The result's last bytes lie on the input's first, the rest before: inputs have room before them in `memory`.
    const auto bytes = static_cast<int64_t>((args.*result).size() * dtype_size((args.*result).dtype));
    std::vector<char> memory(static_cast<size_t>((args.*input).size() + (args.*result).size()) * 8 + 64);
    char* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    (args.*result).data = at;
    (args.*input).data = at + (bytes - 1) / 8 * 8;
    const std::string message = message_of(args, GetParam());
    EXPECT_NE(message.find(std::string(name) + " at "), std::string::npos) << message;
    EXPECT_NE(message.find(std::string("overlaps ") + input_name + " at "), std::string::npos) << message;
    (args.*input).data = at + (bytes + 7) / 8 * 8;
    EXPECT_EQ(message_of(args, GetParam()), "accepted") << name << " right before " << input_name;
  };
  for (const auto& [result, name] :
       {std::pair{&AttentionArgs::output, "output"}, std::pair{&AttentionArgs::lse, "lse"},
        std::pair{&AttentionArgs::counters, "counters"}, std::pair{&AttentionArgs::skip_mask, "skip_mask"}}) {
    refused(result, name, &AttentionArgs::query, "query");
    refused(result, name, &AttentionArgs::key, "key");
    refused(result, name, &AttentionArgs::value, "value");
  }
}

TEST_P(InPhase, ResultsOverEachOtherAndTheWorkspaceAreRefused) {
  ScoreCase test(std::vector<float>(40, 0.0F), 4, 2, 2, GetParam());
  test.run();
  const std::pair<TensorView AttentionArgs::*, std::string> results[] = {{&AttentionArgs::output, "output"},
                                                                         {&AttentionArgs::lse, "lse"},
                                                                         {&AttentionArgs::counters, "counters"},
                                                                         {&AttentionArgs::skip_mask, "skip_mask"}};
  for (size_t i = 0; i < std::size(results); ++i) {
    for (size_t j = i + 1; j < std::size(results); ++j) {
      AttentionArgs args = test.args;
      (args.*results[j].first).data = (args.*results[i].first).data;
      const std::string message = message_of(args, GetParam());
      EXPECT_NE(message.find(results[i].second + " at "), std::string::npos) << message;
      EXPECT_NE(message.find("overlaps " + results[j].second + " at "), std::string::npos) << message;
    }
    AttentionArgs args = test.args;
    args.workspace = (args.*results[i].first).data;
    for (const size_t bytes : {size_t{1}, size_t{1} << 47, static_cast<size_t>(INT64_MAX), SIZE_MAX}) {
      args.workspace_bytes = bytes;
      EXPECT_NE(message_of(args, GetParam()).find("overlaps workspace at "), std::string::npos) << results[i].second;
    }
  }
}

TEST_P(InPhase, CountersAreAddedTo) {
  ScoreCase test(std::vector<float>(40, 0.0F), 4, 1, 1, GetParam());
  test.run();
  const std::vector<int64_t> once = test.counters;
  attention(test.args, GetParam());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(test.counters[i], 2 * once[i]);
  EXPECT_EQ(once[0], 37 + 38 + 39 + 40);
}

TEST(Call, PrefillCountsValueBytesOfBlocksThatNobodyReads) {
  // 512 keys, 16 rows of 2 query heads at the end, all heavy in the newest tile: one work item reads 64 keys' values.
  std::vector<float> scores(512, 0.0F);
  for (int j = 448; j < 464; ++j) scores[j] = 12;
  ScoreCase test(scores, 16, 2, 1);
  test.args.lambda = Lambda::scalar(0.01F);
  test.run();
  EXPECT_EQ(test.counters[1], 16 * 448);
  EXPECT_EQ(test.counters[2] + test.counters[6], 448 * 64 * 4);
  test.args.lambda = Lambda::none();
  test.run();
  EXPECT_EQ(test.counters[2] + test.counters[6], 0);
}

}  // namespace
}  // namespace longhaul
