# What depends on the processor and the operating system that are compiled for.

# Folders whose sources only x86-64 compiles. Other processors compile none.cc of each folder instead.
set(X86_FOLDERS src/attention/amx)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(ALIBI_X86 ON)
  set(PROCESSOR x86)
  set(default_matmul onednn)
  set(disabled_targets HWY_SSSE3 HWY_SSE4)
else()
  set(ALIBI_X86 OFF)
  set(PROCESSOR arm)
  # Debian builds oneDNN for ARM64 without optimized products.
  set(default_matmul openblas)
  # Kernels hold vectors in arrays, which SVE's vectors cannot be members of, and Neoverse V1 and V2 do as many operations
  # per cycle in NEON.
  set(disabled_targets HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128)
endif()
list(JOIN disabled_targets "|" disabled_targets)
set(HIGHWAY_DEFINITIONS "HWY_DISABLED_TARGETS=(${disabled_targets})")

# The library of matrix products. A provider is the source src/nn/NAME.cc, and here its CMake package, the target to link,
# the module and the library for pkg-config, and Debian's package.
set(MATMUL_PROVIDERS onednn openblas)
set(onednn_package dnnl)
set(onednn_target DNNL::dnnl)
set(onednn_pkgconfig dnnl:dnnl)
set(onednn_debian libdnnl-dev)
set(openblas_package OpenBLAS)
set(openblas_target OpenBLAS::openblas)
set(openblas_pkgconfig openblas:openblas)
set(openblas_debian libopenblas-pthread-dev)
set(ALIBI_MATMUL ${default_matmul} CACHE STRING "Library of matrix products: onednn or openblas")
set_property(CACHE ALIBI_MATMUL PROPERTY STRINGS ${MATMUL_PROVIDERS})
if(NOT ALIBI_MATMUL IN_LIST MATMUL_PROVIDERS)
  list(JOIN MATMUL_PROVIDERS ", " known)
  message(FATAL_ERROR "ALIBI_MATMUL is '${ALIBI_MATMUL}', expected one of: ${known}")
endif()
set(MATMUL_PACKAGE ${${ALIBI_MATMUL}_package})
set(MATMUL_TARGET ${${ALIBI_MATMUL}_target})
set(MATMUL_PKGCONFIG ${${ALIBI_MATMUL}_pkgconfig})
set(MATMUL_DEBIAN_PACKAGE ${${ALIBI_MATMUL}_debian})

# Functions of one operating system: the source src/core/system_NAME.cc.
set(default_system portable)
if(CMAKE_SYSTEM_NAME STREQUAL Linux)
  set(default_system linux)
endif()
set(ALIBI_SYSTEM ${default_system} CACHE STRING "Functions of the operating system: linux or portable")
set_property(CACHE ALIBI_SYSTEM PROPERTY STRINGS linux portable)
