#include "longhaul/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/cpu_features.h"
#include "core/environment.h"
#include "core/thread_pool.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

/// Sets a variable until destroyed.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
      was_set_ = true;
    }
    if (value == nullptr) {
      unsetenv(name);
    } else {
      setenv(name, value, 1);
    }
  }
  ~ScopedVariable() {
    if (was_set_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool was_set_ = false;
};

Setting setting(std::string_view name) {
  for (Setting& one : settings()) {
    if (one.name == name) {
      return one;
    }
  }
  throw std::runtime_error("no such setting");
}

TEST(Settings, DefaultsHoldWhereNothingIsSet) {
  const ScopedVariable threads("LONGHAUL_THREADS", nullptr);
  const ScopedVariable isa("LONGHAUL_ISA", "");  // empty counts as not set
  const ScopedVariable multiprocessors("LONGHAUL_MULTIPROCESSORS", nullptr);
  for (const Setting& one : settings()) {
    EXPECT_EQ(one.value, one.default_value) << one.name;
    EXPECT_FALSE(one.from_environment) << one.name;
    EXPECT_EQ(one.error, "") << one.name;
    EXPECT_FALSE(one.meaning.empty());
    EXPECT_FALSE(one.allowed.empty());
  }
  EXPECT_FALSE(threads_setting());
  EXPECT_FALSE(isa_setting());
  EXPECT_FALSE(multiprocessors_setting());
}

TEST(Settings, TheEnvironmentIsRead) {
  const ScopedVariable threads("LONGHAUL_THREADS", "7");
  const ScopedVariable isa("LONGHAUL_ISA", "portable");
  const ScopedVariable multiprocessors("LONGHAUL_MULTIPROCESSORS", "100");
  EXPECT_EQ(threads_setting(), 7);
  EXPECT_EQ(multiprocessors_setting(), 100);
  EXPECT_EQ(isa_setting(), Isa::portable);
  EXPECT_EQ(setting("LONGHAUL_THREADS").value, "7");
  EXPECT_TRUE(setting("LONGHAUL_ISA").from_environment);
}

TEST(Settings, AWrongValueIsAnErrorWhereItIsUsedAndIsListed) {
  for (const char* wrong : {"0", "-1", "1025", "4x", " 4", "4 ", "four", "99999999999999999999", "1.5", "+4"}) {
    const ScopedVariable threads("LONGHAUL_THREADS", wrong);
    const std::string expected =
        "LONGHAUL_THREADS is '" + std::string(wrong) + "', but it must be a whole number from 1 to 1024";
    try {
      threads_setting();
      ADD_FAILURE() << wrong;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), expected);
    }
    EXPECT_EQ(setting("LONGHAUL_THREADS").error, expected);
  }
  const ScopedVariable multiprocessors("LONGHAUL_MULTIPROCESSORS", "1");
  EXPECT_EQ(setting("LONGHAUL_MULTIPROCESSORS").error,
            "LONGHAUL_MULTIPROCESSORS is '1', but it must be a whole number from 2 to 1024");
  const ScopedVariable isa("LONGHAUL_ISA", "AVX2");
  EXPECT_EQ(setting("LONGHAUL_ISA").error, "LONGHAUL_ISA is 'AVX2', but allowed are portable, avx2, avx512 and amx");
  const ScopedVariable emulated("LONGHAUL_ISA", "amx_emulated");  // for tests, not for users
  EXPECT_THROW(isa_setting(), InvalidArgument);
}

TEST(Settings, UnknownVariablesAreReported) {
  const ScopedVariable misspelled("LONGHAUL_THREAD", "4");
  const ScopedVariable known("LONGHAUL_THREADS", "4");
  const ScopedVariable test_only("LONGHAUL_TEST_LEVEL", "short");
  const ScopedVariable foreign("LONGHAULER", "1");
  const std::vector<std::string> unknown = unknown_settings();
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), "LONGHAUL_THREAD"), 1);
  for (const char* name : {"LONGHAUL_THREADS", "LONGHAUL_TEST_LEVEL", "LONGHAULER"}) {
    EXPECT_EQ(std::count(unknown.begin(), unknown.end(), name), 0) << name;
  }
}

TEST(CpuFeatures, PortableAlwaysRunsAndNamesGoBothWays) {
  const std::vector<Isa> usable = usable_isas();
  ASSERT_FALSE(usable.empty());
  EXPECT_EQ(usable.front(), Isa::portable);
  EXPECT_TRUE(std::is_sorted(usable.begin(), usable.end()));
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx, Isa::amx_emulated}) {
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  }
  EXPECT_THROW(isa_from_name("sse"), InvalidArgument);
  EXPECT_THROW(isa_name(static_cast<Isa>(5)), InvalidArgument);
}

TEST(CpuFeatures, AmxIsUsableOrSaysWhyNot) {
  const std::vector<Isa> usable = usable_isas(), testable = testable_isas();
  EXPECT_EQ(std::count(usable.begin(), usable.end(), Isa::amx), why_not_amx().empty() ? 1 : 0);
  EXPECT_EQ(std::count(usable.begin(), usable.end(), Isa::amx_emulated), 0);
  EXPECT_EQ(std::count(testable.begin(), testable.end(), Isa::amx_emulated), 1);
}

TEST(CpuFeatures, AnOverrideHoldsUntilItEnds) {
  const Isa before = selected_isa();
  for (const Isa isa : testable_isas()) {
    {
      const ScopedIsa outer(isa);
      EXPECT_EQ(selected_isa(), isa);
      const ScopedIsa inner(Isa::portable);
      EXPECT_EQ(selected_isa(), Isa::portable);
    }
    EXPECT_EQ(selected_isa(), before);
  }
  if (usable_isas().back() != Isa::amx) {
    EXPECT_THROW(ScopedIsa{Isa::amx}, Unsupported);
    EXPECT_EQ(selected_isa(), before);
  }
}

TEST(DefaultThreads, AtLeastOne) {
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), kMaxThreads);
}

}  // namespace
}  // namespace longhaul
