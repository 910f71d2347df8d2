// A build without CUDA: calls with CUDA tensors are told so.
#include "core/cuda/without_cuda.h"
#include "attention/sm90/multiprocessors.h"
#include "attention/sm90/run.h"

namespace longhaul {
namespace {

[[noreturn]] void refuse() { refuse_without_cuda("query, which is on a CUDA device,"); }

}  // namespace

void require_sm90() { refuse(); }
int usable_multiprocessors() { refuse(); }
size_t sm90_workspace_bytes(const AttentionParams& /*p*/, Phase /*phase*/) { refuse(); }
Geometry sm90_geometry(Phase /*phase*/) { refuse(); }
SkipMaskShape sm90_mask_shape(const AttentionParams& /*p*/, Phase /*phase*/) { refuse(); }
void sm90_attention(const AttentionParams& /*p*/, Phase /*phase*/) { refuse(); }

}  // namespace longhaul
