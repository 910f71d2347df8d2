// The one error hierarchy. Every message is one sentence that names the argument, its value and what is allowed.
#pragma once

#include <stdexcept>
#include <string>

#include "longhaul/export.h"

namespace longhaul {

/// Numeric values are part of the C ABI (longhaul.h) and never change.
enum class ErrorCode : int {
  ok = 0,
  invalid_argument = 1,  ///< A value the caller can correct.
  unsupported = 2,       ///< Valid, but this build, device or kernel cannot do it.
  timeout = 3,           ///< A wait reached its deadline.
  peer_lost = 4,         ///< Another rank died or stopped answering.
  system = 5,            ///< The operating system refused: memory, files, devices.
};

class LONGHAUL_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

template <ErrorCode kCode>
class LONGHAUL_API ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using InvalidArgument = ErrorOf<ErrorCode::invalid_argument>;
using Unsupported = ErrorOf<ErrorCode::unsupported>;
using Timeout = ErrorOf<ErrorCode::timeout>;
using PeerLost = ErrorOf<ErrorCode::peer_lost>;
using System = ErrorOf<ErrorCode::system>;

}  // namespace longhaul
