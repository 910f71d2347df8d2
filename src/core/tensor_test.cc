#include "longhaul/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

std::string check_message(const TensorView& view) {
  try {
    view.check("key");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(TensorView, NotGivenByDefault) {
  const TensorView view;
  EXPECT_FALSE(view.given());
  EXPECT_EQ(check_message(view), "");
}

TEST(TensorView, RowMajorStrides) {
  float memory[24];
  const TensorView view(memory, DType::f32, {2, 3, 4});
  EXPECT_EQ(view.stride[0], 12);
  EXPECT_EQ(view.stride[1], 4);
  EXPECT_EQ(view.stride[2], 1);
  EXPECT_EQ(view.size(), 24);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.describe(), "float32[2, 3, 4]");
  EXPECT_EQ(check_message(view), "");
}

TEST(TensorView, ContiguityIgnoresTheStridesOfSingleElementsAndOfNothing) {
  float memory[12];
  EXPECT_TRUE(TensorView(memory, DType::f32, {1, 3, 4}, {999, 4, 1}).is_contiguous());
  EXPECT_FALSE(TensorView(memory, DType::f32, {3, 4}, {1, 3}).is_contiguous());
  EXPECT_FALSE(TensorView(memory, DType::f32, {3, 4}, {0, 1}).is_contiguous());
  EXPECT_TRUE(TensorView(memory, DType::f32, {3, 0}, {7, 7}).is_contiguous());
}

TEST(TensorView, ZeroStridesAndAnyOrderAreAllowed) {
  float memory[12];
  EXPECT_EQ(check_message(TensorView(memory, DType::f32, {3, 4}, {1, 3})), "");
  EXPECT_EQ(check_message(TensorView(memory, DType::f32, {300, 400}, {0, 0})), "");
}

TEST(TensorView, NothingNeedsNoMemory) {
  EXPECT_EQ(check_message(TensorView(nullptr, DType::f32, {5, 0})), "");
  EXPECT_EQ(check_message(TensorView(nullptr, DType::f32, {kHuge, kHuge, 0})), "");
  EXPECT_EQ(TensorView(nullptr, DType::f32, {kHuge, kHuge, 0}).size(), 0);
}

TEST(TensorView, EveryMistakeIsOneSentence) {
  float memory[12];
  EXPECT_EQ(check_message(TensorView(nullptr, DType::bf16, {3, 4})),
            "key is bfloat16[3, 4], but its data pointer is null");
  EXPECT_EQ(check_message(TensorView(memory, DType::f32, {3, -4})),
            "key has the size -4 in dimension 1, but it must be >= 0");
  EXPECT_EQ(check_message(TensorView(memory, DType::f32, {3, 4}, {-4, 1})),
            "key has the stride -4 in dimension 0, but it must be >= 0");
  TensorView view(memory, DType::f32, {3, 4});
  view.rank = 5;
  EXPECT_EQ(check_message(view), "key has rank 5, but allowed are 0 to 4");
  view.rank = -1;
  EXPECT_EQ(check_message(view), "key has rank -1, but allowed are 0 to 4");
  view.rank = 2;
  view.dtype = static_cast<DType>(9);
  EXPECT_EQ(check_message(view), "key has the dtype 9, but allowed are 0 to 6");
  view.dtype = DType::f32;
  view.device = static_cast<Device>(2);
  EXPECT_EQ(check_message(view), "key has the device 2, but allowed are 0 (cpu) and 1 (cuda)");
  EXPECT_NE(check_message(TensorView(reinterpret_cast<char*>(memory) + 2, DType::f32, {1})).find("multiple of 4 bytes"),
            std::string::npos);
}

TEST(TensorView, SpansBeyondTheAddressSpaceAreRefused) {
  float memory[1];
  for (const TensorView& view : {
           TensorView(memory, DType::f32, {kHuge}),                              // bytes overflow
           TensorView(memory, DType::f32, {kHuge, 2}),                           // elements overflow
           TensorView(memory, DType::f32, {2, 2}, {kHuge, 1}),                   // the last element's offset overflows
           TensorView(memory, DType::f32, {3, 3}, {kHuge, kHuge}),               // the reach of one dimension overflows
           TensorView(memory, DType::u8, {2, kHuge}, {1, 1}),                    // few bytes, but uncountable elements
           TensorView(reinterpret_cast<void*>(~uintptr_t{7}), DType::i64, {2}),  // past the last address
       }) {
    EXPECT_NE(check_message(view).find("spans more than the address space"), std::string::npos) << view.describe();
  }
}

TEST(TensorView, ConstructorsRefuseWhatTheyCannotHold) {
  EXPECT_THROW(TensorView(nullptr, DType::f32, {1, 2, 3, 4, 5}), InvalidArgument);
  EXPECT_THROW(TensorView(nullptr, DType::f32, {1, 2}, {1}), InvalidArgument);
}

}  // namespace
}  // namespace longhaul
