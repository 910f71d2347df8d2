// The kernels of one instruction set in one translation unit; include the simd header first.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "attention/cpu/item_heads.h"
#include "attention/cpu/kernels.h"
#include "attention/mask_layout.h"
#include "core/mutation.h"
#include "longhaul/dtype.h"

#include "attention/cpu/math-inl.h"
#include "attention/cpu/rows-inl.h"

// Each needs those above it: the blank lines keep the formatter from sorting them.
#include "attention/cpu/prefill_group-inl.h"

#include "attention/cpu/prefill_products-inl.h"

#include "attention/cpu/prefill-inl.h"
#include "attention/cpu/prefill_kernels-inl.h"
#include "attention/cpu/prefill_votes-inl.h"

#include "attention/cpu/decode_head-inl.h"

#include "attention/cpu/decode-inl.h"
#include "attention/cpu/decode_votes-inl.h"

#include "attention/cpu/kernels-inl.h"
