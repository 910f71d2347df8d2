# Builds the library with its seeded mutations and asserts that `verify` passes without one and finds each of them.
# cmake -DSOURCE=... -DBINARY=... -DGENERATOR=... -P mutations.cmake
set(mutations 11)

execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BINARY} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release -DLONGHAUL_MUTATIONS=ON
          -DLONGHAUL_BUILD_TESTS=OFF -DLONGHAUL_BUILD_CLI=OFF
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BINARY} --target longhaul_verify_runner --parallel
                OUTPUT_VARIABLE build_log RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the mutated tree does not build:\n${build_log}")
endif()

set(missed)
foreach(n RANGE ${mutations})
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LONGHAUL_MUTATION=${n} ${BINARY}/longhaul_verify_runner
                  OUTPUT_VARIABLE output RESULT_VARIABLE status)
  message(STATUS "mutation ${n}: ${output}")
  if(n EQUAL 0 AND NOT status EQUAL 0)
    message(FATAL_ERROR "verify fails without a mutation:\n${output}")
  elseif(n GREATER 0 AND NOT status EQUAL 1)
    list(APPEND missed ${n})
  endif()
endforeach()
if(missed)
  message(FATAL_ERROR "verify did not find mutations: ${missed}")
endif()
