// Query, key and value from a safetensors file, as the arguments of a call.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "longhaul/attention.h"

namespace longhaul::cli {

struct InputOptions {
  std::string prefix;              ///< the tensors are PREFIXquery, PREFIXkey, ...
  bool query_heads_first = false;  ///< [heads_q, total_q, d] in the file
  bool kv_heads_first = false;     ///< [heads_kv, total_kv, d] or [pages, heads_kv, page_size, d]
};

/// Owns what the views of args() point to.
class AttentionInputs {
 public:
  /// Throws InvalidArgument naming file and tensor.
  AttentionInputs(const std::string& path, const InputOptions& options);
  AttentionInputs(const AttentionInputs&) = delete;
  AttentionInputs& operator=(const AttentionInputs&) = delete;

  const AttentionArgs& args() const { return args_; }
  /// What was assumed because the file does not say it.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  TensorView int32_tensor(const std::string& name, const InputOptions& options);
  void set_lengths(const InputOptions& options);

  SafetensorsFile file_;
  AttentionArgs args_;
  std::vector<std::vector<int32_t>> storage_;
  std::vector<std::string> notes_;
};

/// The softmax scale of each layer of a captured file, from its metadata ("0.125,0.125"); 0 (1/sqrt(head size)) where
/// it has none. Throws InvalidArgument where that is no list of one number a layer.
std::vector<float> softmax_scales(const SafetensorsFile& file, size_t layers);

/// The inputs PREFIXquery, PREFIXkey, PREFIXvalue and, where the file has them, PREFIXsinks, PREFIXquery_scale,
/// PREFIXkey_scale, PREFIXvalue_scale and PREFIXlambda, with the layer's softmax scale from the metadata. Not checked.
AttentionArgs read_tensors(const SafetensorsFile& file, const std::string& prefix);

/// N of every "layer.N.query" in the file, ascending.
std::vector<int> layers_in(const SafetensorsFile& file);

}  // namespace longhaul::cli
