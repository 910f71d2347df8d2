# cmake -DBUILD=<build folder> -DSCRATCH=<folder to use> -DSOURCE=<tests/consumer> -DCXX=<compiler> -DCC=<compiler>
#       [-DSTATIC_FROM=<project>] -P check.cmake
# Installs the library, moves the result elsewhere (a package must not remember where it was built), and builds and runs
# the consumer against it. With STATIC_FROM, BUILD is made first, as a static library without tests and program.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
if(STATIC_FROM)
  run(${CMAKE_COMMAND} -S ${STATIC_FROM} -B ${BUILD} -G Ninja -DBUILD_SHARED_LIBS=OFF -DLONGHAUL_BUILD_TESTS=OFF
    -DLONGHAUL_BUILD_CLI=OFF -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0  # the package matters here, not the speed of its kernels
    "-DCMAKE_CUDA_FLAGS_DEBUG=-O3 -DNDEBUG")  # but those for the GPU take minutes, unless ccache has seen them
  run(${CMAKE_COMMAND} --build ${BUILD} --target longhaul)
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/staged --component library)
file(RENAME ${SCRATCH}/staged ${SCRATCH}/moved)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/build -G Ninja -DCMAKE_PREFIX_PATH=${SCRATCH}/moved
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${CC})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer_cxx)
run(${SCRATCH}/build/consumer_c)
