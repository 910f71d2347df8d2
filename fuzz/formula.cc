#include "attention/config/formula.h"

#include <string>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  return fuzz::refuses_politely([&] {
    config::evaluate_formula(fuzz::as_text(data, size),
                             {{"a", 7.93}, {"b", 8.61}, {"log_a", 2.07}, {"target_sparsity", 0.5}});
  });
}
