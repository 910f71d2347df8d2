// Files that come with the program: under share/longhaul beside its bin folder, or in the build folder and checkout it
// comes from.
#pragma once

#include <string>

namespace longhaul::cli {

/// Path of `name` ("data/activations.safetensors", "bench/targets.json"). Throws System naming the places where it was
/// looked for.
std::string shipped_path(const std::string& name);

}  // namespace longhaul::cli
