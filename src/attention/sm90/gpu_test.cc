// The kernels on the device: against the oracle over all pairs of options, and what no single call shows. Skipped with
// a sentence where there is no device that they serve.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention/testing/compare.h"
#include "attention/testing/cuda_case.h"
#include "attention/testing/random.h"
#include "attention/testing/verify.h"
#include "longhaul/error.h"
#include "test_level.h"

namespace longhaul {
namespace {

using namespace conformance;

/// Both phases, but for the tests of one.
class Gpu : public ::testing::TestWithParam<Phase> {
 protected:
  void SetUp() override {
    std::string why;
    if (!cuda_runs(why)) GTEST_SKIP() << "no CUDA device to test on: " << why;
  }
};

CaseSpec spec_of(Phase phase, Lambdas lambda, uint64_t seed) {
  CaseSpec spec;
  spec.device = Device::cuda;
  spec.phase = phase;
  spec.query = spec.kv = spec.output = DType::bf16;
  spec.d = 128;
  spec.heads_kv = 2;
  spec.group = 2;
  spec.lengths = Lengths::tiles;
  spec.lambda = lambda;
  spec.seed = seed;
  if (phase == Phase::decode) spec.long_keys = 2300;
  return spec;
}

template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

TEST_P(Gpu, EveryKernelAgreesWithTheOracle) {
  VerifyOptions options;
  options.device = Device::cuda;
  options.seed = 20;
  options.every = longhaul::testing::rounds(5, 1, 1);
  options.repeat = longhaul::testing::rounds(1, 1, 10);
  const VerifyReport report = run_verify(options);
  for (const VerifyFailure& f : report.failures)
    ADD_FAILURE() << "seed " << f.seed << " case " << f.index << ": " << f.what << "\n  " << f.spec;
  EXPECT_GE(report.cases, 20);
  EXPECT_GT(report.skipped, report.visible / 10);
}

TEST_P(Gpu, LambdaZeroGivesTheDenseBits) {
  for (const SkipRule rule : {SkipRule::max, SkipRule::sum}) {
    AttentionCase test(spec_of(GetParam(), Lambdas::none, 3));
    CudaRun run(test);
    run.launch();
    const auto dense = run.result_bytes();
    run.args.lambda = Lambda::scalar(0);
    run.args.rule = rule;
    run.launch();
    EXPECT_EQ(run.result_bytes(), dense);
  }
}

// With two multiprocessors a block works on dozens of items, and each place in its rings is used again and again; an
// odd number leaves one idle where blocks come in pairs. Decode splits the keys by their number, unless
// batch-invariant.
TEST_P(Gpu, ResultsDoNotDependOnTheNumberOfMultiprocessors) {
  for (const int group : {2, 3})
    for (const Lambdas lambda : {Lambdas::none, Lambdas::middle}) {
      CaseSpec spec = spec_of(GetParam(), lambda, 12);
      spec.group = group;
      spec.heads_kv = 5;
      spec.batch_invariant = spec.phase == Phase::decode;
      AttentionCase test(spec);
      CudaRun run(test);
      run.launch();
      const auto all = run.result_bytes();
      for (const char* few : {"2", "3", "5"}) {
        setenv("LONGHAUL_MULTIPROCESSORS", few, 1);
        run.launch();
        unsetenv("LONGHAUL_MULTIPROCESSORS");
        EXPECT_EQ(run.result_bytes(), all) << few << " multiprocessors, groups of " << group;
      }
    }
}

TEST_P(Gpu, ResultsDoNotDependOnCountersAndMask) {
  for (const Lambdas lambda : {Lambdas::none, Lambdas::middle}) {
    AttentionCase test(spec_of(GetParam(), lambda, 4));
    CudaRun run(test);
    run.launch();
    const auto with = run.result_bytes();
    run.args.counters = run.args.skip_mask = run.args.lse = {};
    run.launch();
    EXPECT_EQ(run.result_bytes()[0], with[0]);
  }
}

// Lambdas and lengths live in device memory: what a graph replays with new ones is what a fresh call gives.
TEST_P(Gpu, GraphReplaysWithOtherLambdasAndLengths) {
  AttentionCase test(spec_of(GetParam(), Lambdas::per_head, 5));
  CudaRun run(test);
  run.args.skip_mask = {};  // other lengths have other groups
  run.launch();
  const CudaGraph graph(run.stream, [&] { run.queue(); });
  std::vector<float> lambdas(static_cast<size_t>(test.args.lambda.values.size()), 0.2F);
  std::memcpy(test.args.lambda.values.data, lambdas.data(), lambdas.size() * sizeof(float));
  run.input("lambda.values").renew();
  auto* cu_q = static_cast<int32_t*>(test.args.cu_seqlens_q.data);
  cu_q[1] -= GetParam() == Phase::decode ? 1 : 77;  // the first request gives its last queries to the second
  run.input("cu_seqlens_q").renew();
  for (const CudaCopy& result : run.results()) result.renew();
  graph.launch(run.stream);
  run.stream.wait();
  const auto replayed = run.result_bytes();
  run.launch();
  EXPECT_EQ(run.result_bytes(), replayed);
}

TEST_P(Gpu, LambdasOutOfRangeActAsZeroAndAreReportedOnce) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -0.5F, 1.5F}) {
    AttentionCase test(spec_of(GetParam(), Lambdas::per_head, 6));
    auto* lambdas = static_cast<float*>(test.args.lambda.values.data);
    std::fill_n(lambdas, test.args.lambda.values.size(), 0.0F);
    CudaRun run(test);
    run.launch();
    const auto zero = run.result_bytes();
    lambdas[1] = bad;
    run.input("lambda.values").renew();
    run.launch();
    EXPECT_EQ(run.result_bytes(), zero);
    EXPECT_NE(message_of<InvalidArgument>([&] { run.queue(); }).find("lambda.values that are NaN or outside [0, 1]"),
              std::string::npos);
    lambdas[1] = 0;
    run.input("lambda.values").renew();
    EXPECT_NO_THROW(run.launch());
  }
}

TEST_P(Gpu, MalformedLengthsAreReported) {
  for (const int32_t wrong : {-5, 1 << 29}) {
    AttentionCase test(spec_of(GetParam(), Lambdas::none, 7));
    auto* cu_q = static_cast<int32_t*>(test.args.cu_seqlens_q.data);
    const int32_t right = cu_q[1];
    CudaRun run(test);
    cu_q[1] = wrong;
    run.input("cu_seqlens_q").renew();
    run.launch();
    EXPECT_EQ(run.trespass(), "");
    EXPECT_NE(message_of<InvalidArgument>([&] { run.queue(); }).find("cu_seqlens_q"), std::string::npos);
    cu_q[1] = right;
    run.input("cu_seqlens_q").renew();
    EXPECT_NO_THROW(run.launch());
  }
}

TEST_P(Gpu, MaskThatIsTooSmallIsReportedAndNotOverrun) {
  AttentionCase test(spec_of(GetParam(), Lambdas::middle, 8));
  CudaRun run(test);
  TensorView& mask = run.args.skip_mask;
  mask = TensorView(mask.data, DType::u8, {mask.shape[0], mask.shape[1] - 1, mask.shape[2]}, Device::cuda);
  run.launch();
  EXPECT_EQ(run.trespass(), "");
  EXPECT_NE(message_of<InvalidArgument>([&] { run.queue(); }).find("skip_mask"), std::string::npos);
}

TEST_P(Gpu, MaskShapeIsReadFromTheDeviceButNotWhileCapturing) {
  AttentionCase test(spec_of(GetParam(), Lambdas::none, 9));
  CudaRun run(test);
  const SkipMaskShape shape = skip_mask_shape(run.args, GetParam());
  EXPECT_EQ(shape.groups, test.args.skip_mask.shape[1]);
  EXPECT_EQ(shape.blocks, test.args.skip_mask.shape[2]);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              const CudaGraph graph(run.stream, [&] { skip_mask_shape(run.args, GetParam()); });
            }).find("capturing"),
            std::string::npos);
}

TEST_P(Gpu, HostMemoryIsRefused) {
  AttentionCase test(spec_of(GetParam(), Lambdas::none, 10));
  CudaRun run(test);
  std::vector<char> host(static_cast<size_t>(1) << 20);
  for (TensorView* view : {&run.args.query, &run.args.key, &run.args.output}) {
    void* device = view->data;
    view->data = host.data() + (16 - reinterpret_cast<uintptr_t>(host.data()) % 16) % 16;
    EXPECT_NE(message_of<InvalidArgument>([&] { run.queue(); }).find("no memory of a CUDA device"), std::string::npos);
    view->data = device;
  }
  EXPECT_NO_THROW(run.launch());
}

// No keys at all: zeros and -inf. No queries: nothing.
TEST_P(Gpu, EmptyTensors) {
  AttentionCase test(spec_of(GetParam(), Lambdas::none, 11));
  CudaRun run(test);
  const auto batch = static_cast<int64_t>(test.q_lengths.size());
  const std::vector<int32_t> zeros(static_cast<size_t>(batch) + 1, 0);
  std::memcpy(test.args.cu_seqlens_kv.data, zeros.data(), zeros.size() * sizeof(int32_t));
  run.input("cu_seqlens_kv").renew();
  run.args.key.shape[0] = run.args.value.shape[0] = 0;
  run.args.key.data = run.args.value.data = nullptr;
  run.args.skip_mask = {};
  run.launch();
  run.fetch();
  for (int64_t t = 0; t < test.total_q; t += 37) {
    EXPECT_EQ(test.output.at({t, 1, 5}), 0);
    EXPECT_EQ(test.lse.at({1, t}), -std::numeric_limits<double>::infinity());
  }
  std::memcpy(test.args.cu_seqlens_q.data, zeros.data(), zeros.size() * sizeof(int32_t));
  run.input("cu_seqlens_q").renew();
  run.args.query.shape[0] = run.args.output.shape[0] = run.args.lse.shape[1] = 0;
  EXPECT_NO_THROW(run.launch());
}

INSTANTIATE_TEST_SUITE_P(Phases, Gpu, ::testing::Values(Phase::prefill, Phase::decode),
                         [](const auto& phase) { return phase.param == Phase::prefill ? "prefill" : "decode"; });

class GpuDecode : public Gpu {};

// Rings are refilled and rows shared out anew where requests of few and of many rows follow each other in a block.
TEST_P(GpuDecode, AnyNumberOfMultiprocessorsAgreesWithTheOracle) {
  for (const char* few : {"2", "3", "7", "41"}) {
    setenv("LONGHAUL_MULTIPROCESSORS", few, 1);
    VerifyOptions options;
    options.device = Device::cuda;
    options.seed = 30;
    options.every = longhaul::testing::rounds(7, 2, 1);
    const VerifyReport report = run_verify(options);
    unsetenv("LONGHAUL_MULTIPROCESSORS");
    for (const VerifyFailure& f : report.failures)
      ADD_FAILURE() << few << " multiprocessors, case " << f.index << ": " << f.what << "\n  " << f.spec;
  }
}

TEST_P(GpuDecode, BatchInvariantBitsDependOnTheRequestAlone) {
  for (const Lambdas lambda : {Lambdas::none, Lambdas::middle}) {
    CaseSpec spec = spec_of(Phase::decode, lambda, 13);
    spec.batch_invariant = true;
    spec.layout = Layout::paged_hnd;
    spec.long_keys = 9000;
    AttentionCase test(spec);
    CudaRun run(test);
    run.launch();
    run.fetch();
    const std::vector<uint8_t> before = test.output.elements();
    const size_t first = static_cast<size_t>(test.q_lengths[0] * test.heads_q() * spec.d) * 2;
    static_cast<int32_t*>(test.args.kv_lengths.data)[1] /= 2;
    run.input("kv_lengths").renew();
    run.launch();
    run.fetch();
    const std::vector<uint8_t> after = test.output.elements();
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + static_cast<int64_t>(first), after.begin()));
    EXPECT_NE(before, after);
  }
}

TEST_P(GpuDecode, RequestsWithTooManyRowsAreReported) {
  CaseSpec spec = spec_of(Phase::decode, Lambdas::none, 14);
  spec.group = 16;
  AttentionCase test(spec);
  auto* cu_q = static_cast<int32_t*>(test.args.cu_seqlens_q.data);
  ASSERT_GT(test.total_q, 4);  // two requests: now the second has all tokens
  cu_q[1] = 0;
  CudaRun run(test);
  run.launch();
  EXPECT_EQ(run.trespass(), "");
  EXPECT_NE(message_of<InvalidArgument>([&] { run.queue(); }).find("more query tokens"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Decode, GpuDecode, ::testing::Values(Phase::decode));

}  // namespace
}  // namespace longhaul
