# Whether the GPU kernels are built: sets LONGHAUL_WITH_CUDA, and says why not in one line.
#
# Kernels compile for sm_90a alone, into objects that become part of the library: it stays a C++ target, so that users of
# the archive need no CUDA language. The CUDA run-time library is linked statically and looks for the driver when it is
# first used, so that the CPU parts run on a machine without one.
set(LONGHAUL_CUDA AUTO CACHE STRING "GPU kernels: AUTO (where nvcc 13.0 or newer is found), ON (required) or OFF")
set_property(CACHE LONGHAUL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LONGHAUL_WITH_CUDA OFF)
set(LONGHAUL_NO_CUDA_REASON "")

if(LONGHAUL_CUDA STREQUAL "AUTO")
  if(LONGHAUL_SANITIZE)
    set(LONGHAUL_NO_CUDA_REASON "sanitizers check the CPU part")
  elseif(LONGHAUL_BUILD_FUZZERS)
    set(LONGHAUL_NO_CUDA_REASON "fuzzers run the parsers")
  elseif(LONGHAUL_MUTATIONS)
    set(LONGHAUL_NO_CUDA_REASON "mutations are those of the CPU kernels")
  elseif(CMAKE_CROSSCOMPILING OR NOT LONGHAUL_X86)
    set(LONGHAUL_NO_CUDA_REASON "the target is not this machine's x86-64")
  endif()
elseif(NOT LONGHAUL_CUDA)
  set(LONGHAUL_NO_CUDA_REASON "LONGHAUL_CUDA is ${LONGHAUL_CUDA}")
endif()

if(NOT LONGHAUL_NO_CUDA_REASON)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT EXISTS "${CUDAToolkit_NVCC_EXECUTABLE}")
    set(LONGHAUL_NO_CUDA_REASON "nvcc was not found")
  elseif(CUDAToolkit_VERSION VERSION_LESS 13.0)
    set(LONGHAUL_NO_CUDA_REASON "nvcc is ${CUDAToolkit_VERSION}, but 13.0 is the oldest that works")
  else()
    set(LONGHAUL_WITH_CUDA ON)
  endif()
endif()

if(LONGHAUL_WITH_CUDA)
  message(STATUS "CUDA: kernels for sm_90a, by nvcc ${CUDAToolkit_VERSION}")
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "")
  if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  # CMake 3.25 knows neither 90a nor nvcc's flag for C++20: they are said here and in the target's options.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
elseif(NOT LONGHAUL_CUDA STREQUAL "AUTO" AND LONGHAUL_CUDA)
  message(FATAL_ERROR "LONGHAUL_CUDA is ON, but ${LONGHAUL_NO_CUDA_REASON}")
else()
  message(STATUS "CUDA: no GPU kernels, since ${LONGHAUL_NO_CUDA_REASON}")
endif()

# longhaul_kernels: the object library that .cu files join, and through it the library.
function(longhaul_add_kernels)
  add_library(longhaul_kernels OBJECT)
  set_target_properties(longhaul_kernels PROPERTIES CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(longhaul_kernels PRIVATE
    -gencode=arch=compute_90a,code=sm_90a -lineinfo -Xcompiler=-Wall,-Wextra,-Wno-psabi --expt-relaxed-constexpr)
  target_include_directories(longhaul_kernels PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(longhaul_kernels PRIVATE CUDA::cudart_static)
  target_sources(longhaul PRIVATE $<TARGET_OBJECTS:longhaul_kernels>)
  target_link_libraries(longhaul PRIVATE CUDA::cudart_static)
  # A program may have another copy of the run-time library: ours stays our own.
  target_link_options(longhaul PRIVATE LINKER:--exclude-libs,libcudart_static.a)
endfunction()
