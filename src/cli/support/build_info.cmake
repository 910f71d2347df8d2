# Run at every build: writes OUTPUT only where git's answer changed, so that nothing is compiled in vain.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --match=
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  set(commit "")
endif()
set(text "// Generated.\n#pragma once\nnamespace longhaul::cli {\ninline constexpr const char* kBuildCommit = \"${commit}\";\n}\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
