#include "fuzz.h"
#include "longhaul/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  return fuzz::refuses_politely([&] {
    const auto config = parse_checkpoint_json(fuzz::as_text(data, size), "input");
    // What was read can be written, and reads back the same.
    fuzz::require(parse_checkpoint_json(to_checkpoint_json(config), "output") == config);
  });
}
