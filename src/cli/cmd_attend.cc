// longhaul attend: one call on a user's own tensors.
#include <chrono>

#include "attention/reference/reference.h"
#include "cli/attention_flags.h"
#include "cli/attention_inputs.h"
#include "cli/attention_run.h"
#include "cli/command.h"
#include "cli/oracle_difference.h"
#include "cli/support/console.h"
#include "cli/support/interrupt.h"
#include "cli/support/machine.h"
#include "io/safetensors.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

struct AttendOptions {
  std::string qkv, out, query_layout = "nhd", kv_layout = "nhd", order = "newest-first";
  InputOptions input;
  AttentionFlags flags;
  bool skip_mask = false, reference = false, one_part = false;
  int group_rows = -1, block_keys = -1, tile_keys = -1;
};

struct Outcome {
  std::vector<NamedTensor> tensors;
  std::vector<int64_t> counters;
  Geometry geometry{};
  double seconds = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Outcome run_kernel(AttentionRun& run, bool timed_only_once) {
  const auto start = std::chrono::steady_clock::now();
  run.run();
  Outcome outcome;
  outcome.seconds = timed_only_once ? seconds_since(start) : 0;
  outcome.geometry = attention_geometry(run.args(), run.phase());
  outcome.counters = run.counters();
  outcome.tensors = {{"output", run.args().output}, {"log_sum_exp", run.args().lse}, {"counters", run.args().counters}};
  if (run.args().skip_mask.given()) outcome.tensors.push_back({"skip_mask", run.args().skip_mask});
  return outcome;
}

// The oracle's doubles, narrowed to float32 for the file.
struct OracleTensors {
  std::vector<float> output, lse, dropped;
};

ReferenceOptions oracle_options(const AttendOptions& options, const AttentionArgs& args) {
  ReferenceOptions oracle;
  oracle.phase = options.flags.phase_value();
  oracle.geometry = attention_geometry(args, oracle.phase);
  if (options.group_rows >= 0) oracle.geometry.group_rows = options.group_rows;
  if (options.block_keys > 0) oracle.geometry.block_keys = options.block_keys;
  if (options.tile_keys > 0) oracle.geometry.tile_keys = options.tile_keys;
  oracle.order = options.order == "ascending" ? VisitOrder::ascending : VisitOrder::newest_first;
  oracle.kernel_splits = !options.one_part && oracle.order == VisitOrder::newest_first;
  oracle.measure_dropped_mass = true;
  return oracle;
}

ReferenceResult run_oracle(const AttentionArgs& args, ReferenceOptions oracle) {
  Progress bar("oracle", 1);
  oracle.progress = [&bar](int64_t done, int64_t total) {
    bar.set(static_cast<double>(done) / static_cast<double>(total));
  };
  return reference_attention(args, oracle);
}

Outcome oracle_outcome(const AttentionArgs& args, ReferenceResult& result, const ReferenceOptions& oracle,
                       const AttendOptions& options, OracleTensors& storage) {
  const int64_t tokens = args.query.shape[0], heads = args.query.shape[1], dv = args.value.shape[args.value.rank - 1];
  storage.output.assign(result.output.begin(), result.output.end());
  storage.lse.assign(result.lse.begin(), result.lse.end());
  storage.dropped.assign(result.dropped_mass.begin(), result.dropped_mass.end());
  Outcome outcome;
  outcome.geometry = oracle.geometry;
  outcome.counters = result.counters;
  outcome.tensors = {{"output", TensorView(storage.output.data(), DType::f32, {tokens, heads, dv})},
                     {"log_sum_exp", TensorView(storage.lse.data(), DType::f32, {heads, tokens})},
                     {"dropped_mass", TensorView(storage.dropped.data(), DType::f32, {heads, tokens})},
                     {"counters", TensorView(result.counters.data(), DType::i64,
                                             {static_cast<int64_t>(result.counters.size()) / 4, 4})}};
  const SkipMaskShape& shape = result.mask_shape;
  if (options.skip_mask)
    outcome.tensors.push_back({"skip_mask", TensorView(result.skip_mask.data(), DType::u8,
                                                       {shape.voting_heads, shape.groups, shape.blocks})});
  return outcome;
}

SafetensorsMetadata metadata_of(const Outcome& outcome, const AttentionArgs& args, const AttendOptions& options) {
  return {{"program", std::string("longhaul ") + version_text()},
          {"source", options.reference ? "double-precision oracle" : "kernel"},
          {"phase", options.flags.phase},
          {"rule", rule_name(args.rule)},
          {"lambda", lambda_json(args).is_string() ? lambda_json(args).get<std::string>() : lambda_json(args).dump()},
          {"order", options.reference ? options.order : "newest-first"},
          {"tile_keys", std::to_string(outcome.geometry.tile_keys)},
          {"block_keys", std::to_string(outcome.geometry.block_keys)},
          {"group_rows", std::to_string(outcome.geometry.group_rows)},
          {"counters_columns", "visible scores, skipped scores, value bytes not read, key bytes not read"},
          {"skip_mask_values", "0 not visited, 1 computed, 2 skipped"}};
}

void print_outcome(const Outcome& outcome, const AttentionArgs& args, const AttendOptions& options) {
  say("query {}, key {}, value {}", args.query.describe(), args.key.describe(), args.value.describe());
  say("{}: {}", options.reference ? "oracle" : options.flags.phase, geometry_text(outcome.geometry));
  const Json lambda = lambda_json(args);
  say("lambda {}, rule {}{}\n", lambda.is_string() ? lambda.get<std::string>() : lambda.dump(), rule_name(args.rule),
      outcome.seconds > 0 ? fmt::format(", {} (one cold call)", duration_text(outcome.seconds)) : "");
  std::vector<std::string> header{options.flags.phase == "decode" ? "KV head" : "query head", "visible scores",
                                  "sparsity"};
  // In prefill the kernel shares a read among heads; the oracle has no such reads to count.
  const bool bytes_known = !options.reference || options.flags.phase == "decode";
  if (bytes_known) header.emplace_back("value bytes not read");
  Table table(header);
  const auto add = [&](const std::string& name, int64_t seen, double share, int64_t bytes) {
    std::vector<std::string> row{name, std::to_string(seen), percent(share)};
    if (bytes_known) row.push_back(bytes_text(static_cast<double>(bytes)));
    table.add(row);
  };
  int64_t visible = 0, value_bytes = 0;
  for (size_t h = 0; h < outcome.counters.size() / 4; ++h) {
    const int64_t* row = &outcome.counters[4 * h];
    visible += row[0];
    value_bytes += row[2];
    add(std::to_string(h), row[0], row[0] > 0 ? static_cast<double>(row[1]) / static_cast<double>(row[0]) : 0.0,
        row[2]);
  }
  add("all", visible, sparsity(outcome.counters), value_bytes);
  print_text(table.text());
}

Json outcome_json(const Invocation& invocation, const Outcome& outcome, const AttentionArgs& args,
                  const AttendOptions& options, const std::vector<std::string>& notes) {
  Json json = result_header(invocation.command_line);
  json["query"] = args.query.describe();
  json["key"] = args.key.describe();
  json["value"] = args.value.describe();
  json["out"] = options.out;
  json["phase"] = options.flags.phase;
  json["source"] = options.reference ? "oracle" : "kernel";
  json["order"] = options.reference ? options.order : "newest-first";
  json["lambda"] = lambda_json(args);
  json["rule"] = rule_name(args.rule);
  json["geometry"] = geometry_json(outcome.geometry);
  json["sparsity"] = sparsity(outcome.counters);
  json["sparsity_by_head"] = sparsity_by_head(outcome.counters);
  json["counters"] = outcome.counters;
  json["notes"] = notes;
  return json;
}

void check_options(const AttendOptions& options) {
  if (options.reference) return;
  if (options.order != "newest-first")
    throw UsageError("--order needs --reference: the kernels visit the newest key first");
  if (options.one_part) throw UsageError("--one-part needs --reference");
  for (const auto& [name, value] :
       {std::pair{"--group-rows", options.group_rows}, std::pair{"--block-keys", options.block_keys},
        std::pair{"--tile-keys", options.tile_keys}})
    if (value >= 0) throw UsageError(fmt::format("{} needs --reference: a kernel's voting group is fixed", name));
}

int run_attend(const Invocation& invocation, AttendOptions options) {
  check_options(options);
  check_distinct({{"--qkv", options.qkv}}, {{"--out", options.out}, {"--json", invocation.json}});
  check_writable("--out", options.out);
  options.input.query_heads_first = options.query_layout == "hnd";
  options.input.kv_heads_first = options.kv_layout == "hnd";
  const AttentionInputs inputs(options.qkv, options.input);
  std::vector<std::string> notes = inputs.notes();
  AttentionArgs args = inputs.args();
  std::vector<float> lambda_storage;
  options.flags.apply(args, lambda_storage, notes);

  AttentionRun run(args, options.flags.phase_value(), {.skip_mask = options.skip_mask});
  Outcome outcome = run_kernel(run, !options.reference);
  ReferenceResult result;
  OracleTensors storage;
  Json difference;
  if (options.reference) {
    const ReferenceOptions oracle = oracle_options(options, run.args());
    result = run_oracle(args, oracle);
    difference = compare_with_oracle(run, result, oracle);
    outcome = oracle_outcome(args, result, oracle, options, storage);
  }
  {
    const DeferInterrupts defer;
    write_safetensors(options.out, outcome.tensors, metadata_of(outcome, args, options));
  }
  for (const std::string& note : notes) say("note: {}", note);
  print_outcome(outcome, args, options);
  Json json = outcome_json(invocation, outcome, args, options, notes);
  if (options.reference) {
    print_difference(difference);
    json["difference"] = difference;
  }
  say("\nwrote {}", options.out);
  write_json(invocation.json, json);
  return kFine;
}

void add_oracle_flags(CLI::App& command, AttendOptions& options) {
  command.add_flag("--reference", options.reference,
                   "Write the double-precision oracle's result (float32, with the dropped softmax mass) and print how "
                   "far the kernel is from it");
  command
      .add_option("--order", options.order,
                  "With --reference: visit the newest key first (as the kernels) or the oldest (as published)")
      ->check(CLI::IsMember({"newest-first", "ascending"}))
      ->capture_default_str();
  command
      .add_option("--group-rows", options.group_rows,
                  "With --reference: query rows that vote together (0 in decode: all)")
      ->type_name("N")
      ->transform(whole_number(0, 1 << 20));
  command.add_option("--block-keys", options.block_keys, "With --reference: keys skipped together")
      ->type_name("N")
      ->transform(whole_number(1, 1 << 20));
  command
      .add_option("--tile-keys", options.tile_keys, "With --reference: keys whose maximum joins the reference at once")
      ->type_name("N")
      ->transform(whole_number(1, 1 << 20));
  command.add_flag("--one-part", options.one_part,
                   "With --reference, in decode: do not follow the kernel's splits of the keys");
}

}  // namespace

void add_attend(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<AttendOptions>();
  auto* command = program.add_subcommand("attend",
                                         "Run attention on the tensors query, key and value of a safetensors file\n\n"
                                         "Also read from the file where it has them: cu_seqlens_q, cu_seqlens_kv, "
                                         "page_table, kv_lengths, sinks, query_scale, "
                                         "key_scale, value_scale, lambda, and softmax_scale from its metadata. A flag "
                                         "that gives lambda or the softmax scale replaces the file's, and a note says "
                                         "so.\nWritten: output, log_sum_exp, counters, "
                                         "with --skip-mask the mask by head, voting "
                                         "group and block.");
  command->add_option("--qkv", options->qkv, "Input")
      ->required()
      ->type_name("FILE.safetensors")
      ->check(path_of("file"));
  command->add_option("--out", options->out, "Output")
      ->required()
      ->type_name("FILE.safetensors")
      ->check(path_of("file"));
  command->add_option("--prefix", options->input.prefix, "The tensors' names begin with this, as in 'layer.5.'")
      ->type_name("TEXT");
  command
      ->add_option("--query-layout", options->query_layout,
                   "Dimensions of query: tokens, heads (nhd) or heads, tokens (hnd)")
      ->check(CLI::IsMember({"nhd", "hnd"}))
      ->capture_default_str();
  command->add_option("--kv-layout", options->kv_layout, "The same of key and value, within a page where paged")
      ->check(CLI::IsMember({"nhd", "hnd"}))
      ->capture_default_str();
  options->flags.add_phase(*command);
  options->flags.add_mask_and_scores(*command);
  options->flags.add_skipping(*command);
  command->add_flag("--batch-invariant", options->flags.batch_invariant, "In decode: split the keys by length alone");
  options->flags.add_threads(*command);
  command->add_flag("--skip-mask", options->skip_mask, "Also write which blocks were skipped");
  add_oracle_flags(*command, *options);
  finish_command(
      *command, invocation,
      "  longhaul attend --qkv qkv.safetensors --out out.safetensors\n"
      "  longhaul attend --qkv qkv.safetensors --out out.safetensors --lambda 0.01 --skip-mask\n"
      "  longhaul attend --qkv model.safetensors --prefix layer.5. --out out.safetensors --scale-factor 80 "
      "--reference\n"
      "  longhaul attend --qkv qkv.safetensors --out out.safetensors --lambda 0.01 --reference --order ascending "
      "--group-rows 64 --block-keys 128 --tile-keys 128",
      [&invocation, options] { return run_attend(invocation, *options); });
}

}  // namespace longhaul::cli
