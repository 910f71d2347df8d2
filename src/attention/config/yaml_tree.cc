#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "attention/config/tree.h"
#include "io/printable.h"
#include "longhaul/error.h"

namespace longhaul::config {
namespace {

constexpr size_t kMaxNodes = 200'000;  // 48 layers x 64 heads x 2 phases of overrides with 5 values are 37,000

// A plain scalar that is a decimal number, or YAML's .inf and .nan, which the readers then refuse by name.
bool parse_number(std::string_view text, double& value) {
  if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF") {
    value = negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    return true;
  }
  if (digits.empty() || digits.find_first_not_of("0123456789.eE+-") != std::string_view::npos ||
      digits.find_first_of("0123456789") == std::string_view::npos || digits.front() == '-' || digits.front() == '+') {
    return false;
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return false;
  if (error == std::errc::result_out_of_range)
    value = std::numeric_limits<double>::infinity();  // refused as not finite
  if (negative) value = -value;
  return true;
}

Node make_scalar(const std::string& text, bool plain, int line) {
  Node node;
  node.line = line;
  node.text = text;
  node.kind = Node::Kind::string;
  if (!plain) return node;
  if (text == "true" || text == "True" || text == "TRUE" || text == "false" || text == "False" || text == "FALSE") {
    node.kind = Node::Kind::boolean;
    node.boolean = text.front() == 't' || text.front() == 'T';
  } else if (parse_number(text, node.number)) {
    node.kind = Node::Kind::number;
  }
  return node;
}

// Builds the tree from events and throws before the parser's recursion or the tree can grow large.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view source) : source_(source) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "a second document starts; a configuration is one document");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    Node node;
    node.line = mark.line + 1;
    add(mark, std::move(node), true);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "an alias is used; aliases are not supported");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    if (tag != "?" && tag != "!" && !tag.empty()) {
      fail(mark, fmt::format("the tag '{}' is used; tags are not supported", printable(tag)));
    }
    add(mark, make_scalar(value, tag == "?", mark.line + 1), true);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, Node::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, Node::Kind::map);
  }
  void OnMapEnd() override { close(); }

  Node take() { return std::move(root_); }
  bool complete() const { return documents_ == 1; }

 private:
  struct Level {
    Node node;
    std::string key;
    bool has_key = false;
    std::set<std::string> keys;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw InvalidArgument(fmt::format("{} line {}: {}", source_, mark.line + 1, what));
  }

  void open(const YAML::Mark& mark, Node::Kind kind) {
    if (levels_.size() >= kMaxDepth) fail(mark, fmt::format("the nesting is deeper than {} levels", kMaxDepth));
    if (expects_key()) fail(mark, "a key is a list or map; keys must be scalars");
    Level level;
    level.node.kind = kind;
    level.node.line = mark.line + 1;
    levels_.push_back(std::move(level));
  }

  void close() {
    Node node = std::move(levels_.back().node);
    levels_.pop_back();
    YAML::Mark mark;
    mark.line = node.line - 1;
    add(mark, std::move(node), false);
  }

  bool expects_key() const {
    return !levels_.empty() && levels_.back().node.kind == Node::Kind::map && !levels_.back().has_key;
  }

  void add(const YAML::Mark& mark, Node node, bool scalar) {
    if (++nodes_ > kMaxNodes) fail(mark, fmt::format("there are more than {} values", kMaxNodes));
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == Node::Kind::list) {
      level.node.items.push_back(std::move(node));
    } else if (scalar && !level.has_key) {
      if (!level.keys.insert(node.text).second)
        fail(mark, fmt::format("the key '{}' appears twice", printable(node.text)));
      level.key = std::move(node.text);
      level.has_key = true;
    } else {
      level.node.members.push_back({std::move(level.key), std::move(node)});
      level.has_key = false;
    }
  }

  std::string_view source_;
  std::vector<Level> levels_;
  Node root_;
  int documents_ = 0;
  size_t nodes_ = 0;
};

}  // namespace

Node parse_yaml_tree(std::string_view text, std::string_view source) {
  if (text.size() > kMaxConfigBytes) {
    throw InvalidArgument(
        fmt::format("{}: the file has {} bytes; at most {} are read", source, text.size(), kMaxConfigBytes));
  }
  if (text.find('\0') != std::string_view::npos)
    throw InvalidArgument(fmt::format("{}: the file holds a NUL byte", source));
  Builder builder(source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    throw InvalidArgument(
        fmt::format("{} line {}: the YAML is broken ({})", source, error.mark.line + 1, printable(error.msg)));
  }
  if (!builder.complete()) throw InvalidArgument(fmt::format("{}: the file is empty", source));
  return builder.take();
}

}  // namespace longhaul::config
