#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "io/atomic_file.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("longhaul_safetensors_" + std::to_string(::getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string path(const std::string& name = "t.safetensors") const { return (directory_ / name).string(); }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {})); }

  fs::path directory_;
};

std::string bytes_of(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\1');
}

// The message of the error that parsing throws; the empty string when it throws none.
std::string error_of(const std::string& file, ErrorCode code = ErrorCode::invalid_argument) {
  std::vector<uint64_t> aligned(file.size() / 8 + 1);
  if (!file.empty()) std::memcpy(aligned.data(), file.data(), file.size());
  try {
    parse_safetensors({reinterpret_cast<const std::byte*>(aligned.data()), file.size()}, "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

// Pads the header to a multiple of 8, so that offset 0 is aligned.
std::string padded(std::string header) {
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

TEST_F(Safetensors, RoundTripKeepsEveryDtypeShapeAndMetadata) {
  std::vector<float> f(6);
  std::iota(f.begin(), f.end(), 0.5F);
  std::vector<uint8_t> b{1, 2, 3};
  std::vector<uint16_t> h{7, 8};
  std::vector<int64_t> l{-1};
  std::vector<int32_t> i{5, 6, 7, 8};
  const std::vector<NamedTensor> tensors{{"bytes", TensorView(b.data(), DType::u8, {3})},
                                         {"half", TensorView(h.data(), DType::f16, {2, 1})},
                                         {"brain", TensorView(h.data(), DType::bf16, {1, 2, 1, 1})},
                                         {"fp8", TensorView(b.data(), DType::f8e4m3, {1, 3})},
                                         {"empty", TensorView(nullptr, DType::f32, {0, 4})},
                                         {"float", TensorView(f.data(), DType::f32, {2, 3})},
                                         {"int", TensorView(i.data(), DType::i32, {4})},
                                         {"long \xC3\xA9", TensorView(l.data(), DType::i64, {1})}};
  write_safetensors(path(), tensors, {{"model", "a \"quoted\" name"}});
  const SafetensorsFile file(path());
  EXPECT_EQ(file.metadata().at("model"), "a \"quoted\" name");
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const TensorView view = file.get(tensor.name);
    EXPECT_EQ(view.describe(), tensor.view.describe());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype), 0U) << tensor.name;
    const size_t bytes = static_cast<size_t>(view.size()) * dtype_size(view.dtype);
    EXPECT_TRUE(bytes == 0 || std::memcmp(view.data, tensor.view.data, bytes) == 0) << tensor.name;
  }
  EXPECT_EQ(files(), 1U) << "the temporary file is gone";
}

TEST_F(Safetensors, StridedViewsAreWrittenRowMajor) {
  std::vector<float> f(24);
  std::iota(f.begin(), f.end(), 0.0F);
  const std::vector<NamedTensor> tensors{{"t", TensorView(f.data(), DType::f32, {3, 2, 2}, {1, 12, 6})},
                                         {"broadcast", TensorView(f.data() + 5, DType::f32, {2, 2}, {0, 0})}};
  write_safetensors(path(), tensors);
  const SafetensorsFile file(path());
  const auto* t = static_cast<const float*>(file.get("t").data);
  for (int x = 0; x < 3; ++x) {
    for (int y = 0; y < 2; ++y) {
      for (int z = 0; z < 2; ++z) EXPECT_EQ(t[(x * 2 + y) * 2 + z], static_cast<float>(x + 12 * y + 6 * z));
    }
  }
  for (int x = 0; x < 4; ++x) EXPECT_EQ(static_cast<const float*>(file.get("broadcast").data)[x], 5.0F);
}

TEST_F(Safetensors, MissingTensorListsTheNames) {
  float f = 1;
  write_safetensors(path(), std::vector<NamedTensor>{{"query", TensorView(&f, DType::f32, {1})}});
  const SafetensorsFile file(path());
  EXPECT_FALSE(file.find("key").given());
  try {
    file.get("key");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("has no tensor 'key'; it holds query"), std::string::npos) << error.what();
  }
}

TEST_F(Safetensors, RefusesToWriteWhatCouldNotBeRead) {
  float f = 1;
  const TensorView view(&f, DType::f32, {1});
  const auto write = [&](std::vector<NamedTensor> tensors) { write_safetensors(path(), tensors); };
  EXPECT_THROW(write({{"", view}}), InvalidArgument);
  EXPECT_THROW(write({{"__metadata__", view}}), InvalidArgument);
  EXPECT_THROW(write({{"a", view}, {"a", view}}), InvalidArgument);
  EXPECT_THROW(write({{"a", TensorView()}}), InvalidArgument);
  EXPECT_THROW(write({{"\xff", view}}), InvalidArgument);
  EXPECT_THROW(write({{"a", TensorView(&f, DType::f32, {1}, Device::cuda)}}), InvalidArgument);
  EXPECT_EQ(files(), 0U);
}

TEST_F(Safetensors, AFullDiskLosesNothing) {
  write_text_file(path(), "old content");
  std::vector<float> f(1 << 20);
  const std::vector<NamedTensor> tensors{{"t", TensorView(f.data(), DType::f32, {1 << 20})}};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // stands for a full disk: write() fails half-way
  EXPECT_THROW(write_safetensors(path(), tensors), System);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_text_file(path(), 100), "old content");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Safetensors, WritesThroughSymbolicLinksAndKeepsPermissions) {
  write_text_file(path("real"), "x");
  fs::permissions(path("real"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(path("real"), path("link"));
  write_text_file(path("link"), "y");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text_file(path("real"), 10), "y");
  EXPECT_EQ(fs::status(path("real")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Safetensors, FilesThatCannotBeOpened) {
  EXPECT_THROW(SafetensorsFile(path("absent")), System);
  EXPECT_THROW(SafetensorsFile(directory_.string()), InvalidArgument);
  EXPECT_THROW(write_text_file(path("no/such/folder"), "x"), System);
  EXPECT_THROW(write_text_file(directory_.string(), "x"), InvalidArgument);
  write_text_file(path("empty"), "");
  EXPECT_THROW(SafetensorsFile(path("empty")), InvalidArgument);
  EXPECT_THROW(read_text_file(path("absent"), 10), System);
  write_text_file(path("long"), "12345");
  EXPECT_THROW(read_text_file(path("long"), 4), InvalidArgument);
}

TEST(SafetensorsParse, AcceptsAnEmptyFileAndAnyOrderOfTheData) {
  EXPECT_EQ(error_of(bytes_of("{}", 0)), "");
  EXPECT_EQ(error_of(bytes_of(padded(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                                     R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"),
                              8)),
            "");
}

struct Malformed {
  const char* header;
  size_t data_bytes;
  const char* message;  // a part of it
};

TEST(SafetensorsParse, EachMalformedHeaderGivesOneClearSentence) {
  const Malformed cases[] = {
      {"", 0, "the header does not start with '{'"},
      {"[]", 0, "the header does not start with '{'"},
      {"{", 0, "no valid JSON at byte"},
      {"{}x", 0, "no valid JSON at byte"},
      {"{} ", 3, "3 bytes follow the last tensor"},
      {R"({"a":1})", 0, "tensor 'a' is described by no object"},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "empty name"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is no object"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ entry 'a' is no string"},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor 'a' has no shape"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor 'a' has no data_offsets"},
      {R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,1]}})", 1, "a dtype that is no string"},
      {R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "a shape that is no array"},
      {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, "no integer >= 0"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "no integer >= 0"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "1 data_offsets instead of 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "the key 'x'; allowed are dtype"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1, "has 1 bytes of data, but uint8[2] needs 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "do not lie within"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 0, "do not lie within the 0 bytes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}})", 1,
       "do not lie"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "'b' overlaps"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "bytes 0 to 1 of the data belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "names 'a' twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "names 'dtype' twice"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, "nests deeper"},
      {"{\"\xff\":1}", 0, "no valid JSON at byte"},
      {R"({"a":{"dtype":"U8","shape":[1e400],"data_offsets":[0,1]}})", 1, "no valid JSON"},
  };
  for (const Malformed& c : cases) {
    const std::string message = error_of(bytes_of(c.header, c.data_bytes));
    EXPECT_NE(message.find(c.message), std::string::npos) << c.header << " gave: " << message;
    EXPECT_NE(message.find("safetensors file 'f'"), std::string::npos) << message;
  }
}

TEST(SafetensorsParse, WhatTheFormatAllowsAndThisLibraryDoesNot) {
  const auto unsupported = [](const char* header) { return error_of(bytes_of(header, 8), ErrorCode::unsupported); };
  EXPECT_NE(unsupported(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})").find("tensor 'a' has dtype F64"),
            std::string::npos);
  EXPECT_NE(unsupported(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})").find("rank 0"), std::string::npos);
  EXPECT_NE(unsupported(R"({"a":{"dtype":"U8","shape":[1,1,1,1,8],"data_offsets":[0,8]}})").find("rank 5"),
            std::string::npos);
}

TEST(SafetensorsParse, MisalignedDataIsRefused) {
  const std::string header = padded(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");
  EXPECT_EQ(error_of(bytes_of(header, 4)), "");
  EXPECT_NE(error_of(bytes_of(header + " ", 4)).find("no multiple of its element size 4"), std::string::npos);
}

TEST(SafetensorsParse, LyingHeaderLengths) {
  EXPECT_NE(error_of("1234567").find("7 bytes are too few"), std::string::npos);
  std::string file = bytes_of("{}", 0);
  file[0] = 3;
  EXPECT_NE(error_of(file).find("the header length 3 exceeds the 2 bytes"), std::string::npos);
  file[7] = '\x80';
  EXPECT_NE(error_of(file).find("exceeds the format's limit"), std::string::npos);
}

TEST(SafetensorsParse, EveryTruncationIsAnErrorAndNeverACrash) {
  const std::string file = bytes_of(padded(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"), 8);
  for (size_t size = 0; size < file.size(); ++size) EXPECT_NE(error_of(file.substr(0, size)), "") << size;
  EXPECT_EQ(error_of(file), "");
}

}  // namespace
}  // namespace longhaul
