// What a build without CUDA says.
#pragma once

namespace longhaul {

/// Throws Unsupported: "`what` needs CUDA, but this build has no GPU kernels (nvcc was not found)".
[[noreturn]] void refuse_without_cuda(const char* what);

}  // namespace longhaul
