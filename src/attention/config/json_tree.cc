#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "attention/config/tree.h"
#include "io/printable.h"
#include "longhaul/error.h"

namespace longhaul::config {
namespace {

using nlohmann::json;

// Builds the tree from events; nlohmann's own tree would drop repeated keys silently.
class Builder : public json::json_sax_t {
 public:
  explicit Builder(std::string_view source) : source_(source) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    Node node;
    node.kind = Node::Kind::boolean;
    node.boolean = value;
    node.text = value ? "true" : "false";
    return add(std::move(node));
  }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value), fmt::format("{}", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value), fmt::format("{}", value));
  }
  bool number_float(number_float_t value, const string_t& text) override { return number(value, text); }
  bool string(string_t& value) override {
    Node node;
    node.kind = Node::Kind::string;
    node.text = std::move(value);
    return add(std::move(node));
  }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(Node::Kind::map); }
  bool key(string_t& value) override {
    if (!levels_.back().keys.insert(value).second) fail(fmt::format("the key '{}' appears twice", printable(value)));
    levels_.back().key = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Node::Kind::list); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // 406: a number beyond the range of a double; the rest are errors of syntax.
    fail(error.id == 406 ? fmt::format("a number near byte {} is out of range", position)
                         : fmt::format("the JSON is broken at byte {}", position));
  }

  Node take() { return std::move(root_); }

 private:
  struct Level {
    Node node;
    std::string key;
    std::set<std::string> keys;
  };

  [[noreturn]] void fail(const std::string& what) const { throw InvalidArgument(fmt::format("{}: {}", source_, what)); }

  bool number(double value, std::string text) {
    Node node;
    node.kind = Node::Kind::number;
    node.number = value;
    node.text = std::move(text);
    return add(std::move(node));
  }
  bool open(Node::Kind kind) {
    if (levels_.size() >= kMaxDepth) fail(fmt::format("the nesting is deeper than {} levels", kMaxDepth));
    levels_.emplace_back().node.kind = kind;
    return true;
  }
  bool close() {
    Node node = std::move(levels_.back().node);
    levels_.pop_back();
    return add(std::move(node));
  }
  bool add(Node node) {
    if (levels_.empty()) {
      root_ = std::move(node);
    } else if (Level& level = levels_.back(); level.node.kind == Node::Kind::list) {
      level.node.items.push_back(std::move(node));
    } else {
      level.node.members.push_back({std::move(level.key), std::move(node)});
    }
    return true;
  }

  std::string_view source_;
  std::vector<Level> levels_;
  Node root_;
};

}  // namespace

Node parse_json_tree(std::string_view text, std::string_view source) {
  if (text.size() > kMaxConfigBytes) {
    throw InvalidArgument(
        fmt::format("{}: the file has {} bytes; at most {} are read", source, text.size(), kMaxConfigBytes));
  }
  Builder builder(source);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace longhaul::config
