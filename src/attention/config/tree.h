// A configuration as a small tree, from YAML or JSON, and readers that refuse whatever they were not told to expect.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/config.h"

namespace longhaul::config {

inline constexpr int kMaxDepth = 16;

struct Member;

struct Node {
  enum class Kind { null, boolean, number, string, list, map };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string text;  // a string; else the scalar as written
  std::vector<Node> items;
  std::vector<Member> members;  // keys are unique
  int line = 0;                 // from 1; 0 in JSON, which gives none
};

struct Member {
  std::string key;
  Node value;
};

/// Throw InvalidArgument naming `source` for text above kMaxConfigBytes, nesting above kMaxDepth, repeated keys, broken
/// syntax, and in YAML for aliases, tags, keys that are no scalars and anything but one document.
Node parse_yaml_tree(std::string_view text, std::string_view source);
Node parse_json_tree(std::string_view text, std::string_view source);

/// A node with the path that led to it. The tree and `source` must outlive it.
class Value {
 public:
  Value(const Node& node, std::string_view source, std::string path = "")
      : node_(&node), source_(source), path_(std::move(path)) {}

  const Node& node() const { return *node_; }
  bool is_map() const { return node_->kind == Node::Kind::map; }
  bool is_number() const { return node_->kind == Node::Kind::number; }

  /// Throws unless this is a map all of whose keys are in `allowed` (an empty list allows all).
  const Value& expect_map(std::initializer_list<std::string_view> allowed) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  Value operator[](std::string_view key) const;  // throws where the map has no such key
  std::vector<std::pair<std::string, Value>> members() const;
  std::vector<Value> items() const;  // throws unless a list

  double number() const;  // finite
  double number_in(double low, double high) const;
  double number_at_least_0() const;
  int64_t integer_in(int64_t low, int64_t high) const;
  std::string string() const;
  std::vector<std::string> strings() const;
  Interval interval(double low, double high) const;  // a list [low, high]

  /// "SOURCE line N: PATH <what>".
  [[noreturn]] void fail(const std::string& what) const;
  std::string describe() const;  // the value itself, for messages

 private:
  const Node* find(std::string_view key) const;
  const Node* node_;
  std::string_view source_;
  std::string path_;
};

/// A scalar for both phases, or a map with prefill, decode or both; each at least 0 and at most `high`.
ByPhase<double> read_by_phase(const Value& value, double high);

/// A number that YAML 1.1 readers take for a number too: "1.0e-05", not "1e-05".
std::string yaml_number(double value);
/// In double quotes, with escapes.
std::string yaml_string(std::string_view text);

}  // namespace longhaul::config
