// longhaul bench attention: what dense attention reaches here, and what skipping adds.
#include <algorithm>
#include <cmath>

#include "attention/sm90/decode/decode.h"
#include "attention/sm90/prefill/prefill.h"
#include "cli/attention_bench.h"
#include "cli/attention_bench_cuda.h"
#include "cli/attention_flags.h"
#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/json.h"
#include "core/cpu_features.h"
#include "core/cuda/devices.h"
#include "core/thread_pool.h"

namespace longhaul::cli {
namespace {

struct BenchOptions {
  std::string device = "cpu", data = "runs";
  std::string phase = "prefill", set, dtype = "bfloat16", kv_dtype;
  int64_t length = 8192, batch = 1, query_tokens = 0, heads_q = 8, heads_kv = 2, head_size = 128, page_size = 0;
  std::vector<double> sparsity{0.25, 0.5, 0.75, 0.9};
  bool dense_only = false, full = false, no_ceilings = false;
  std::string rule;
  int threads = 0, repeat = 20;
};

BenchCase case_of(const BenchOptions& options) {
  BenchCase result;
  DataShape& shape = result.shape;
  shape.phase = options.phase == "decode" ? Phase::decode : Phase::prefill;
  shape.batch = options.batch;
  shape.length = options.length;
  shape.query_tokens = options.query_tokens;
  shape.heads_q = options.heads_q;
  shape.heads_kv = options.heads_kv;
  shape.d = options.head_size;
  shape.dtype = dtype_from_name(options.dtype);
  shape.kv_dtype = options.kv_dtype.empty() ? shape.dtype : dtype_from_name(options.kv_dtype);
  shape.page_size = options.page_size;
  result.causal = !options.full;
  result.rule = options.rule == "sum" ? SkipRule::sum : SkipRule::max;
  if (!options.dense_only) result.sparsities = options.sparsity;
  result.zero_and_counters = !options.dense_only;
  result.threads = options.threads > 0 ? options.threads : default_threads();
  result.repeat = options.repeat;
  result.ceilings = !options.no_ceilings;
  return result;
}

// The shapes that the targets name.
std::vector<BenchCase> named_set(const BenchOptions& options) {
  std::vector<BenchCase> cases;
  for (const auto& [phase, dtype] :
       {std::pair{"prefill", "bfloat16"}, std::pair{"prefill", "float32"}, std::pair{"decode", "bfloat16"}}) {
    BenchOptions one = options;
    one.phase = phase;
    one.dtype = dtype;
    one.dense_only = options.dense_only || one.dtype == "float32";
    if (one.phase == "decode") {
      one.batch = 8;
      one.length = 32768;
    }
    if (options.set == "targets" || options.set == phase) cases.push_back(case_of(one));
  }
  return cases;
}

// Shapes of the targets on Hopper, and of the named sets in decode, unless the command line says otherwise.
void cuda_defaults(const CLI::App& command, BenchOptions& options) {
  const auto left_out = [&](const char* name) { return command.get_option(name)->count() == 0; };
  const bool decode = options.phase == "decode";
  if (options.data == "captured") {
    for (const char* name : {"--length", "--query-tokens", "--heads-q", "--heads-kv", "--head-size", "--page-size",
                             "--dtype", "--kv-dtype"})
      if (!left_out(name))
        throw UsageError(fmt::format("{} does not go with --data captured, whose tensors are as they are", name));
    if (!decode && !left_out("--batch"))
      throw UsageError("--batch does not go with --data captured in prefill, which is one request");
  }
  if (left_out("--batch") && decode) options.batch = 8;
  if (left_out("--length")) options.length = decode ? 32768 : 16384;
  if (left_out("--heads-q")) options.heads_q = 64;
  if (left_out("--heads-kv")) options.heads_kv = 4;
}

// What the kernels do not take, said before the data is made.
void check_cuda(const BenchOptions& options, const DataShape& shape) {
  if (options.threads > 0) throw UsageError("--threads does not go with --device cuda");
  for (const auto& [name, dtype] : {std::pair{"--dtype", shape.dtype}, std::pair{"--kv-dtype", shape.kv_dtype}})
    if (dtype != DType::bf16 && dtype != DType::f16)
      throw UsageError(fmt::format("{} {} does not go with --device cuda, whose kernels take bfloat16 and float16",
                                   name, dtype_name(dtype)));
  if (shape.kv_dtype != shape.dtype)
    throw UsageError(fmt::format("--kv-dtype {} must be --dtype {} with --device cuda", dtype_name(shape.kv_dtype),
                                 dtype_name(shape.dtype)));
  if (shape.d != 64 && shape.d != 128)
    throw UsageError(
        fmt::format("--head-size {} does not go with --device cuda, whose kernels take 64 and 128", shape.d));
  if (shape.phase == Phase::prefill) return;
  const int64_t tokens = std::max<int64_t>(shape.query_tokens, 1), heads = shape.heads_q / shape.heads_kv;
  if (tokens > sm90::kDecodeMaxTokens)
    throw UsageError(fmt::format("--query-tokens {} does not go with --phase decode, which takes at most {}", tokens,
                                 sm90::kDecodeMaxTokens));
  if (tokens * heads > sm90::kDecodeMaxRows)
    throw UsageError(
        fmt::format("{} query tokens and {} query heads a KV head are {} rows, but decode on a CUDA device takes at "
                    "most {}",
                    tokens, heads, tokens * heads, sm90::kDecodeMaxRows));
}

CudaBench cuda_case_of(const BenchOptions& options) {
  CudaBench cuda;
  cuda.bench = case_of(options);
  cuda.captured = options.data == "captured";
  DataShape& shape = cuda.bench.shape;
  check_cuda(options, shape);
  // In decode all rows of a KV head vote, however many have a direction in common.
  if (shape.phase == Phase::prefill) {
    shape.group_rows = kSm90Prefill.group_rows;
  } else {
    shape.heads_share = true;
  }
  shape.kind = options.data == "heavy" ? DataKind::heavy : options.data == "random" ? DataKind::random : DataKind::runs;
  return cuda;
}

void print_case(const BenchCase& bench, const BenchOutcome& outcome) {
  say("\n{}, {} threads, {}", bench.describe(), bench.threads, isa_name(selected_isa()));
  if (outcome.ceiling > 0) say("{} of this machine: {}", bench.ceiling_name(), bench.rate_text(outcome.ceiling));
  Table table({"case", "lambda", "sparsity", "time", "p10", "p90", "rate", "of ceiling", "speed-up", "of ideal",
               "output error"});
  for (const BenchLine& line : outcome.lines)
    table.add({line.name, line.lambda < 0 ? "none" : short_number(line.lambda),
               line.lambda < 0 ? "" : percent(line.sparsity), duration_text(line.time.median),
               duration_text(line.time.p10), duration_text(line.time.p90), bench.rate_text(line.rate),
               outcome.ceiling > 0 ? percent(line.rate / outcome.ceiling) : "", fmt::format("{:.3f}", line.speedup),
               line.lambda > 0 ? percent(line.speedup / line.ideal) : "",
               line.lambda < 0 ? "" : short_number(line.error)});
  print_text(table.text());
}

void print_cuda_case(const CudaBench& cuda, const BenchOutcome& outcome) {
  say("{}, {}", cuda.bench.describe(), cuda_devices().devices[0].name);
  say("data: {}", cuda.data);
  const bool decode = cuda.bench.shape.phase == Phase::decode;
  Table table({"case", "lambda", "sparsity", "time", "p10", "p90", cuda_rate_unit(cuda), "speed-up", "of ideal",
               "output error"});
  for (const BenchLine& line : outcome.lines)
    table.add(
        {line.name, line.lambda < 0 ? "none" : short_number(line.lambda), line.lambda < 0 ? "" : percent(line.sparsity),
         duration_text(line.time.median), duration_text(line.time.p10), duration_text(line.time.p90),
         fmt::format("{:.{}f}", line.rate / 1e12, decode ? 3 : 1), fmt::format("{:.3f}", line.speedup),
         line.lambda > 0 ? percent(line.speedup / line.ideal) : "", line.lambda < 0 ? "" : short_number(line.error)});
  print_text(table.text());
}

int run_cuda(const Invocation& invocation, const BenchOptions& options) {
  CudaBench cuda = cuda_case_of(options);
  Json json = result_header(invocation.command_line);
  json["rows"] = Json::array();
  const BenchOutcome outcome = run_cuda_bench(cuda);
  say("median of {} interleaved rounds on one stream, by CUDA events; {}; rate of the whole job, skipped work counted",
      options.repeat, cuda.timing);
  print_cuda_case(cuda, outcome);
  for (Json& row : cuda_bench_rows(cuda, outcome)) json["rows"].push_back(std::move(row));
  write_json(invocation.json, json);
  return kFine;
}

int run_bench(const Invocation& invocation, const BenchOptions& options) {
  if (options.heads_q % options.heads_kv != 0)
    throw UsageError(
        fmt::format("--heads-q {} must be a multiple of --heads-kv {}", options.heads_q, options.heads_kv));
  if (options.query_tokens > options.length)
    throw UsageError(
        fmt::format("--query-tokens {} must not exceed --length {}", options.query_tokens, options.length));
  if (options.device == "cuda") return run_cuda(invocation, options);
  if (options.data != "runs")
    throw UsageError(fmt::format("--data {} goes with --device cuda: on the CPU it is runs", options.data));
  const std::vector<BenchCase> cases = options.set.empty() ? std::vector{case_of(options)} : named_set(options);
  Json json = result_header(invocation.command_line);
  json["rows"] = Json::array();
  say("median of {} interleaved rounds; inputs leave the caches before each call; rate of the whole job, skipped work "
      "counted",
      options.repeat);
  say("data: {}", GeneratedData::description({}));
  for (const BenchCase& bench : cases) {
    const BenchOutcome outcome = run_bench_case(bench);
    print_case(bench, outcome);
    // With a file to write, the rest is worth measuring also where nobody reads the text.
    invocation.json.empty() ? check_output() : flush_text();
    for (Json& row : bench_rows(bench, outcome)) json["rows"].push_back(std::move(row));
  }
  write_json(invocation.json, json);
  return kFine;
}

}  // namespace

void add_bench(CLI::App& program, Invocation& invocation) {
  auto* bench = program.add_subcommand("bench", "Measure kernels on generated data");
  bench->require_subcommand(0, 1);
  auto* command = bench->add_subcommand(
      "attention",
      "Dense attention against this machine's limits, and skipping against dense\n\nAll candidates of a case run in "
      "turn, in "
      "one process. The ideal speed-up at sparsity s is 1/(1 - s/2): scores are always computed.");
  auto options = std::make_shared<BenchOptions>();
  command
      ->add_option("--set", options->set,
                   "A named set of shapes: prefill (8k, bf16 and fp32), decode (batch 8, 32k, bf16), targets (both)")
      ->check(CLI::IsMember({"prefill", "decode", "targets"}));
  command
      ->add_option(
          "--device", options->device,
          "cpu, or cuda: there 64 query / 4 KV heads, one request of 16384 tokens in prefill, 8 of 32768 in decode")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command
      ->add_option("--data", options->data,
                   "cuda: runs (heavy runs of 16 keys), heavy (with sink and local keys), random, or captured (the "
                   "shipped activations; in decode a context for each of --batch)")
      ->check(CLI::IsMember({"runs", "heavy", "random", "captured"}))
      ->capture_default_str();
  command->add_option("--phase", options->phase, "prefill or decode")
      ->check(CLI::IsMember({"prefill", "decode"}))
      ->capture_default_str();
  command->add_option("--length", options->length, "Context length of a request")
      ->transform(whole_number(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Requests")
      ->transform(whole_number(1, 1 << 16))
      ->capture_default_str();
  command
      ->add_option("--query-tokens", options->query_tokens, "Query tokens a request (0: all in prefill, 1 in decode)")
      ->transform(whole_number(0, 1 << 24));
  command->add_option("--heads-q", options->heads_q, "Query heads")
      ->transform(whole_number(1, 1024))
      ->capture_default_str();
  command->add_option("--heads-kv", options->heads_kv, "Key/value heads")
      ->transform(whole_number(1, 1024))
      ->capture_default_str();
  command->add_option("--head-size", options->head_size, "Head size")
      ->transform(whole_number(64, 256))  // CLI11 does not say what is allowed where a number is too large for it
      ->check(CLI::IsMember({64, 128, 256}))
      ->capture_default_str();
  command->add_option("--page-size", options->page_size, "Tokens a page of the cache, pages shuffled (0: not paged)")
      ->transform(whole_number(0, 256));
  const auto dtypes = CLI::IsMember({"bfloat16", "float16", "float32", "float8_e4m3"});
  command->add_option("--dtype", options->dtype, "Type of query, and of key and value unless --kv-dtype says otherwise")
      ->check(dtypes)
      ->capture_default_str();
  command->add_option("--kv-dtype", options->kv_dtype, "Type of key and value")->check(dtypes);
  command->add_flag("--full", options->full, "A query sees all keys (default: causal)");
  command->add_option("--rule", options->rule, "Skip rule: max or sum")->check(CLI::IsMember({"max", "sum"}));
  command->add_option("--sparsity", options->sparsity, "Sparsities to measure, each reached by a lambda found first")
      ->delimiter(',')
      ->check(number_from(0.01, 0.99))
      ->capture_default_str();
  command->add_flag("--dense-only", options->dense_only, "Only lambda none");
  command->add_flag("--no-ceilings", options->no_ceilings, "Do not measure this machine's limits");
  command->add_option("--threads", options->threads, "Threads (0: LONGHAUL_THREADS, or all cores)")
      ->transform(whole_number(0, 1024));
  command->add_option("--repeat", options->repeat, "Rounds; at least 20 for a result to keep")
      ->transform(whole_number(1, 10000))
      ->capture_default_str();
  // A set fixes these.
  for (const char* name : {"--phase", "--dtype", "--length", "--batch", "--device"}) {
    command->get_option("--set")->excludes(command->get_option(name));
  }
  finish_command(
      *command, invocation,
      "  longhaul bench attention --set targets --json result.json\n"
      "  longhaul bench attention --phase prefill --length 16384 --sparsity 0.5,0.75\n"
      "  longhaul bench attention --device cuda --data heavy --sparsity 0.5,0.9\n"
      "  longhaul bench attention --device cuda --phase decode --batch 16 --length 65536 --page-size 64\n"
      "  longhaul bench attention --phase decode --batch 8 --length 32768 --page-size 64 --kv-dtype float8_e4m3",
      [&invocation, options, command] {
        if (options->device == "cuda") cuda_defaults(*command, *options);
        return run_bench(invocation, *options);
      });
}

}  // namespace longhaul::cli
