# CUDA's compiler and the GPUs that it compiles for: CMAKE_CUDA_ARCHITECTURES, by default A100 and GPUs that run its code
# (80), H100 (90) and RTX 50 (120, if this CUDA supports it). The last one also has intermediate code for later GPUs.
set(architectures_given ${CMAKE_CUDA_ARCHITECTURES})
if(NOT architectures_given)
  set(CMAKE_CUDA_ARCHITECTURES 80)  # what CMake chooses by itself, CUDA 13 refuses
endif()
# Without it, CMake requires CUDA20 for every target that contains objects of CUDA sources, which fails with Makefiles.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)
if(NOT architectures_given)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90 120)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
endif()
message(STATUS "Attention on GPUs: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
