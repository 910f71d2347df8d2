#include "longhaul/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "longhaul/error.h"

namespace longhaul {
namespace {

/// The oracle of a narrow format: its values in double precision, from the definition, and the search for the nearest.
struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  bool has_infinity;  // otherwise all-ones is NaN alone and overflow saturates
  uint32_t (*encode)(float);
  float (*decode)(uint32_t);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
  uint32_t first_not_finite() const {
    return has_infinity ? ((1U << exponent_bits) - 1) << mantissa_bits : sign_bit() - 1;
  }
  /// Value of the bits without sign; for first_not_finite() what the next exponent step would be.
  double value(uint32_t bits) const {
    const auto exponent = static_cast<int>(bits >> mantissa_bits);
    const double mantissa = bits & ((1U << mantissa_bits) - 1);
    const double unit = std::ldexp(1.0, -mantissa_bits);
    return exponent == 0 ? std::ldexp(mantissa * unit, 1 - bias()) : std::ldexp(1 + mantissa * unit, exponent - bias());
  }
  uint32_t nearest(float input) const {
    const uint32_t sign = std::signbit(input) ? sign_bit() : 0;
    const double magnitude = std::fabs(static_cast<double>(input));
    const uint32_t largest = first_not_finite() - 1;
    if (!has_infinity && magnitude >= value(largest)) {
      return sign | largest;
    }
    if (std::isinf(magnitude)) {
      return sign | first_not_finite();
    }
    uint32_t low = 0;  // the largest bits with value <= magnitude; values grow with the bits
    uint32_t high = first_not_finite();
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (value(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - value(low);
    const double above = value(low + 1) - magnitude;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : low + 1);
  }
};

const Format kBf16{"bfloat16",
                   8,
                   7,
                   true,
                   [](float x) -> uint32_t { return bf16_from_float(x); },
                   [](uint32_t b) { return bf16_to_float(static_cast<uint16_t>(b)); }};
const Format kF16{"float16",
                  5,
                  10,
                  true,
                  [](float x) -> uint32_t { return f16_from_float(x); },
                  [](uint32_t b) { return f16_to_float(static_cast<uint16_t>(b)); }};
const Format kE4M3{"float8_e4m3",
                   4,
                   3,
                   false,
                   [](float x) -> uint32_t { return f8e4m3_from_float(x); },
                   [](uint32_t b) { return f8e4m3_to_float(static_cast<uint8_t>(b)); }};

class NarrowFormat : public testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }
  void expect_nearest(float input) {
    if (std::isnan(input)) {
      EXPECT_TRUE(std::isnan(format().decode(format().encode(input))));
      return;
    }
    const uint32_t got = format().encode(input);
    if (got != format().nearest(input)) {  // no macro per element: millions of them
      ADD_FAILURE() << format().name << " of " << input << " (bits " << std::hex << std::bit_cast<uint32_t>(input)
                    << ") is " << got << ", the nearest is " << format().nearest(input);
    }
  }
};

TEST_P(NarrowFormat, DecodesEveryBitPattern) {
  const uint32_t end = format().sign_bit();
  for (uint32_t bits = 0; bits < end; ++bits) {
    for (const bool negative : {false, true}) {
      const float got = format().decode(bits | (negative ? end : 0));
      if (bits < format().first_not_finite()) {
        ASSERT_EQ(static_cast<double>(got), (negative ? -1 : 1) * format().value(bits)) << std::hex << bits;
      } else if (bits == format().first_not_finite() && format().has_infinity) {
        ASSERT_TRUE(std::isinf(got)) << std::hex << bits;
      } else {
        ASSERT_TRUE(std::isnan(got)) << std::hex << bits;
      }
      ASSERT_EQ(std::signbit(got), negative) << std::hex << bits;
    }
  }
}

TEST_P(NarrowFormat, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 2 * format().sign_bit(); ++bits) {
    const float value = format().decode(bits);
    if (!std::isnan(value)) {
      ASSERT_EQ(format().encode(value), bits);
    } else {
      ASSERT_TRUE(std::isnan(format().decode(format().encode(value)))) << std::hex << bits;
      ASSERT_EQ(std::signbit(format().decode(format().encode(value))), std::signbit(value)) << std::hex << bits;
    }
  }
}

TEST_P(NarrowFormat, RoundsEveryMidpointAndItsNeighboursToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < format().first_not_finite(); ++bits) {
    const double middle = (format().value(bits) + format().value(bits + 1)) / 2;
    const auto as_float = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(as_float), middle) << "a float holds every midpoint";
    for (const float sign : {1.0F, -1.0F}) {
      expect_nearest(sign * as_float);
      expect_nearest(sign * std::nextafter(as_float, 0.0F));
      expect_nearest(sign * std::nextafter(as_float, infinity));
      expect_nearest(sign * std::nextafter(static_cast<float>(format().value(bits)), infinity));
    }
  }
}

TEST_P(NarrowFormat, RoundsTheExtremes) {
  using Limits = std::numeric_limits<float>;
  for (const float sign : {1.0F, -1.0F}) {
    for (const float value :
         {0.0F, Limits::denorm_min(), Limits::min(), std::nextafter(Limits::min(), 0.0F), Limits::max(),
          Limits::infinity(), 448.0F, 464.0F, std::nextafter(464.0F, 465.0F), 65504.0F, 65519.996F, 65520.0F}) {
      expect_nearest(sign * value);
    }
  }
}

TEST_P(NarrowFormat, NaNStaysNaNWhateverItsPayload) {
  for (uint32_t payload = 1; payload < (1U << 23); payload = payload * 2 + 1) {
    for (const uint32_t bits : {payload, payload ^ 0x7fffff, 1U << 22, 1U}) {
      for (const uint32_t sign : {0U, 0x80000000U}) {
        if (bits != 0) {
          const auto input = std::bit_cast<float>(sign | 0x7f800000 | bits);
          const float back = format().decode(format().encode(input));
          ASSERT_TRUE(std::isnan(back)) << std::hex << bits;
          ASSERT_TRUE(std::bit_cast<uint32_t>(back) & 0x400000) << "quiet";
          ASSERT_EQ(std::signbit(back), sign != 0);
        }
      }
    }
  }
}

TEST_P(NarrowFormat, RoundsRandomBitPatterns) {
  std::mt19937 random(20240607);
  for (int i = 0; i < 1'000'000; ++i) {
    expect_nearest(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  // Where the format's own values lie, which random floats rarely hit.
  std::uniform_real_distribution<double> exponent(-format().bias() - format().mantissa_bits - 2.0,
                                                  format().bias() + 2.0);
  for (int i = 0; i < 1'000'000; ++i) {
    expect_nearest(static_cast<float>(std::exp2(exponent(random))) * (i % 2 ? 1.0F : -1.0F));
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowFormat, testing::Values(&kBf16, &kF16, &kE4M3),
                         [](const auto& test) { return test.param->name; });

TEST(DType, E4M3SaturatesAndHasNoInfinity) {
  EXPECT_EQ(f8e4m3_to_float(0x7e), 448.0F);
  EXPECT_EQ(f8e4m3_from_float(449.0F), 0x7e);
  EXPECT_EQ(f8e4m3_from_float(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_TRUE(std::isnan(f8e4m3_to_float(0x7f)));
}

TEST(DType, NamesGoBothWays) {
  const std::vector<DType> all{DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::i32, DType::i64, DType::u8};
  for (const DType dtype : all) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_name(DType::f8e4m3), "float8_e4m3");
  EXPECT_EQ(dtype_size(DType::i64), 8U);
  EXPECT_EQ(dtype_size(DType::f8e4m3), 1U);
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no InvalidArgument";
}

TEST(DType, ErrorsNameTheValueAndTheChoice) {
  EXPECT_EQ(message_of([] { dtype_from_name("bf16"); }),
            "dtype is 'bf16', but allowed are float32, float16, bfloat16, float8_e4m3, int32, int64 and uint8");
  EXPECT_EQ(message_of([] { dtype_size(static_cast<DType>(7)); }), "dtype has the value 7, but allowed are 0 to 6");
  EXPECT_EQ(message_of([] { dtype_name(static_cast<DType>(-1)); }), "dtype has the value -1, but allowed are 0 to 6");
  const int64_t number = 0;
  EXPECT_EQ(message_of([&] { load_as_float(&number, DType::i64, 0); }),
            "dtype is int64, but only float32, float16, bfloat16 and float8_e4m3 convert to and from float");
}

TEST(DType, LoadAndStoreAddressElementsOfAnyAlignment) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f8e4m3}) {
    std::vector<unsigned char> memory(1 + 5 * dtype_size(dtype), 0xaa);
    void* misaligned = memory.data() + 1;
    store_from_float(misaligned, dtype, 3, 1.5F);
    EXPECT_EQ(load_as_float(misaligned, dtype, 3), 1.5F);
    EXPECT_EQ(memory[0], 0xaa);
    EXPECT_EQ(memory[3 * dtype_size(dtype)], 0xaa) << "the element before is untouched";
    EXPECT_EQ(memory[1 + 4 * dtype_size(dtype)], 0xaa) << "the element after is untouched";
  }
}

}  // namespace
}  // namespace longhaul
