// Vector exp2, tanh and the conversions between log domains. Included once per instruction set, after its simd header.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr float kLog2E = 1.44269504088896340736F;
inline constexpr float kInfinity = __builtin_inff();

/// 2^x for x <= 127; 0 below -126.5; NaN stays NaN. Relative error < 1.2e-7: the polynomial is the Chebyshev fit of
/// degree 6 on
/// [-0.5, 0.5] with 2^0 = 1 exact.
LONGHAUL_INLINE F exp2(F x) {
  x = max(set1(-127.0F), x);  // this operand order keeps NaN
  const F n = round(x);
  const F f = x - n;
  F p = fma(f, set1(0.000154531629451F), set1(0.00133908633647F));
  p = fma(p, f, set1(0.00961808255728F));
  p = fma(p, f, set1(0.0555035711422F));
  p = fma(p, f, set1(0.240226507606F));
  p = fma(p, f, set1(0.693147188026F));
  p = fma(p, f, set1(1.0F));
  return p * pow2(n);
}

/// tanh(x), relative error < 3e-7: an odd polynomial near 0, where 1 - exp(-2x) would cancel.
LONGHAUL_INLINE F tanh(F x) {
  const F a = abs(x);
  const F e = exp2(a * set1(-2.0F * kLog2E));
  const F far = (set1(1.0F) - e) / (set1(1.0F) + e);
  const F x2 = x * x;
  F p = fma(x2, set1(62.0F / 2835.0F), set1(-17.0F / 315.0F));
  p = fma(p, x2, set1(2.0F / 15.0F));
  p = fma(p, x2, set1(-1.0F / 3.0F));
  const F near = fma(p * x2, x, x);
  return select(less(a, set1(0.25F)), near, copy_sign(far, x));
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
