#include "capi/status.h"

#include <fmt/format.h>

#include <cstring>

namespace longhaul::capi {
namespace {

static_assert(LH_OK == static_cast<int>(ErrorCode::ok));
static_assert(LH_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument));
static_assert(LH_UNSUPPORTED == static_cast<int>(ErrorCode::unsupported));
static_assert(LH_TIMEOUT == static_cast<int>(ErrorCode::timeout));
static_assert(LH_PEER_LOST == static_cast<int>(ErrorCode::peer_lost));
static_assert(LH_SYSTEM == static_cast<int>(ErrorCode::system));

// A fixed buffer: an error about exhausted memory must not need memory. The longest messages have some 300 bytes.
thread_local char t_message[2048] = "";

}  // namespace

lh_status fail(ErrorCode code, const char* message) noexcept {
  const size_t length = strnlen(message, sizeof(t_message) - 1);
  std::memcpy(t_message, message, length);
  t_message[length] = '\0';
  return static_cast<lh_status>(code);
}

void require_pointer(const void* pointer, const char* name) {
  if (pointer == nullptr) {
    throw InvalidArgument(fmt::format("{} is NULL, but it is required", name));
  }
}

}  // namespace longhaul::capi

extern "C" {

const char* lh_last_error(void) noexcept { return longhaul::capi::t_message; }

const char* lh_status_name(lh_status status) noexcept {
  switch (status) {
    case LH_OK:
      return "ok";
    case LH_INVALID_ARGUMENT:
      return "invalid_argument";
    case LH_UNSUPPORTED:
      return "unsupported";
    case LH_TIMEOUT:
      return "timeout";
    case LH_PEER_LOST:
      return "peer_lost";
    case LH_SYSTEM:
      return "system";
    default:
      return "unknown";
  }
}

}  // extern "C"
