// Which devices the kernels serve.
#pragma once

#include <string>

namespace longhaul {

/// Why no kernel of this version serves a device of this compute capability, as the end of a sentence that names it;
/// empty where one does. Code for sm_90a runs on 9.0 alone: its instructions exist neither before nor after.
std::string sm90_refusal(int major, int minor);

}  // namespace longhaul
