// Exceptions become status codes here: every C function is guarded(...).
#pragma once

#include <exception>
#include <new>

#include "longhaul/error.h"
#include "longhaul/longhaul.h"

namespace longhaul::capi {

/// Keeps the text for lh_last_error() of this thread and returns `code` as an lh_status.
lh_status fail(ErrorCode code, const char* message) noexcept;

template <class Body>
lh_status guarded(Body&& body) noexcept {
  try {
    body();
    return LH_OK;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::system, "memory is exhausted");
  } catch (const std::exception& error) {
    return fail(ErrorCode::system, error.what());
  } catch (...) {
    return fail(ErrorCode::system, "an exception of an unknown type was thrown");
  }
}

/// Throws InvalidArgument where a pointer that the function needs is null.
void require_pointer(const void* pointer, const char* name);

}  // namespace longhaul::capi
