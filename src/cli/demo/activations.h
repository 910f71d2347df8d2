// Captured query, key and value of several layers, as one call: a layer's heads beside the next layer's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul::cli {

/// `path` itself, or the .safetensors files of the folder, sorted. Throws System where there are none.
std::vector<std::string> activation_files(const std::string& path);

class Activations {
 public:
  /// `path`: a safetensors file with layer.N.query, layer.N.key, layer.N.value [tokens, heads, d], or a folder that
  /// holds such files.
  explicit Activations(const std::string& path);
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  const std::vector<int>& layers() const { return layers_; }
  int64_t tokens() const { return args_.query.shape[0]; }
  int64_t heads_q() const { return args_.query.shape[1]; }
  int64_t heads_kv() const { return args_.key.shape[1]; }
  int64_t group() const { return heads_q() / heads_kv(); }
  int64_t heads_kv_per_layer() const { return heads_kv() / static_cast<int64_t>(layers_.size()); }
  int64_t d() const { return args_.query.shape[2]; }
  const std::string& path() const { return path_; }
  /// What the file says about its origin.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// One causal prefill of all tokens, all layers at once.
  const AttentionArgs& args() const { return args_; }

 private:
  std::string path_;
  std::vector<int> layers_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::byte> query_, key_, value_;
  std::vector<int32_t> lengths_;
  AttentionArgs args_;
};

/// A part of the work of a prefill of the first `tokens` tokens: `groups` runs of `rows` consecutive queries, evenly
/// spaced, each on all keys before it. The keys are read in place, as pages.
class PrefillSample {
 public:
  PrefillSample(const AttentionArgs& all, int64_t tokens, int64_t groups, int64_t rows);
  PrefillSample(const PrefillSample&) = delete;
  PrefillSample& operator=(const PrefillSample&) = delete;
  const AttentionArgs& args() const { return args_; }
  int64_t queries() const { return args_.query.shape[0]; }

 private:
  std::vector<std::byte> query_;
  std::vector<int32_t> cu_q_, lengths_, pages_;
  AttentionArgs args_;
};

/// A decode step of `requests` requests, evenly spaced over the second half of the text: each has a copy of the keys
/// and values before its query, as a server's requests would.
class DecodeBatch {
 public:
  DecodeBatch(const AttentionArgs& all, int64_t requests);
  DecodeBatch(const DecodeBatch&) = delete;
  DecodeBatch& operator=(const DecodeBatch&) = delete;
  const AttentionArgs& args() const { return args_; }
  int64_t keys() const { return args_.key.shape[0]; }

 private:
  std::vector<std::byte> query_, key_, value_;
  std::vector<int32_t> cu_q_, cu_kv_;
  AttentionArgs args_;
};

}  // namespace longhaul::cli
