// The refusal of devices, and of CUDA tensors where no device can serve them: needs no GPU.
#include "attention/sm90/device.h"

#include <gtest/gtest.h>

#include "core/cuda/devices.h"
#include "longhaul/attention.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

TEST(Sm90Device, ServesHopperAlone) {
  EXPECT_EQ(sm90_refusal(9, 0), "");
  for (const auto& [major, minor, name] : {std::tuple{8, 0, "sm_80"},
                                           {8, 6, "sm_86"},
                                           {8, 9, "sm_89"},
                                           {9, 1, "sm_91"},
                                           {10, 0, "sm_100"},
                                           {10, 3, "sm_103"},
                                           {12, 0, "sm_120"},
                                           {7, 5, "sm_75"}}) {
    const std::string text = sm90_refusal(major, minor);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find("sm_90"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

// A call in order but for its device: nothing may be read, and where there is no device or no kernel one sentence says
// so.
TEST(Sm90Device, CallsWithoutADeviceSayWhy) {
  if (!cuda_devices().devices.empty()) GTEST_SKIP() << "there is a CUDA device";
  void* nowhere = reinterpret_cast<void*>(0x1000);
  AttentionArgs args;
  args.query = args.output = TensorView(nowhere, DType::bf16, {4, 2, 64}, Device::cuda);
  args.output.data = reinterpret_cast<void*>(0x100000);
  args.key = args.value = TensorView(nowhere, DType::bf16, {4, 2, 64}, Device::cuda);
  args.cu_seqlens_q = args.cu_seqlens_kv = TensorView(nowhere, DType::i32, {2}, Device::cuda);
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "not refused";
  };
  for (const std::string& text :
       {refusal([&] { prefill(args); }), refusal([&] { attention_workspace_bytes(args, Phase::prefill); }),
        refusal([&] { attention_geometry(args, Phase::prefill); }),
        refusal([&] { skip_mask_shape(args, Phase::prefill); })}) {
    EXPECT_NE(text.find("CUDA"), std::string::npos) << text;
    EXPECT_NE(text.find(cuda_devices().why_none), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(cuda_devices().why_none.empty());
}

}  // namespace
}  // namespace longhaul
