# Three groups of sources, each compiled once:
#   operator: attention, cached decoding and the C interface
#   library:  everything else that has a public header, and the code that it needs
#   tools:    code that only the command needs
# and the libraries made of their objects:
#   alibi_attention  operator                      installed, alibi::attention
#   alibi            operator, library             installed, alibi::alibi
#   alibi_internal   operator, library and tools   never installed: the command and the tests, which use private headers
set(operator_dependencies Threads::Threads hwy::hwy fmt::fmt)
if(ALIBI_CUDA)
  list(APPEND operator_dependencies CUDA::cudart_static)
endif()
set(library_dependencies ${operator_dependencies} ${MATMUL_TARGET} SentencePiece::sentencepiece Oniguruma::onig
                         Utf8proc::utf8proc ZLIB::ZLIB Zstandard::zstd ${CMAKE_DL_LIBS})

file(GLOB_RECURSE OPERATOR_SOURCES CONFIGURE_DEPENDS src/attention/*.cc src/capi/*.cc)
list(APPEND OPERATOR_SOURCES src/core/device.cc src/core/format.cc src/core/interrupt.cc src/core/isa.cc src/core/memory.cc
     src/core/parallel.cc
     src/core/processor_${PROCESSOR}.cc src/core/product_rates.cc src/core/stream.cc src/core/system_${ALIBI_SYSTEM}.cc
     src/core/tensor.cc)
# Sources that need CUDA, and stubs for a build without it.
file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS src/core/cuda/*.cc src/attention/cuda/kernel.cc)
list(FILTER CUDA_SOURCES EXCLUDE REGEX "/none\\.cc$")
file(GLOB_RECURSE CUDA_KERNELS CONFIGURE_DEPENDS src/*.cu)
set(CUDA_STUBS ${PROJECT_SOURCE_DIR}/src/core/cuda/none.cc ${PROJECT_SOURCE_DIR}/src/attention/cuda/none.cc)
# Sources of one processor, and stubs for the others.
foreach(folder IN LISTS X86_FOLDERS)
  file(GLOB folder_sources CONFIGURE_DEPENDS ${folder}/*.cc)
  list(APPEND X86_SOURCES ${folder_sources})
endforeach()
set(X86_STUBS ${X86_SOURCES})
list(FILTER X86_STUBS INCLUDE REGEX "/none\\.cc$")
list(REMOVE_ITEM X86_SOURCES ${X86_STUBS})
# The library of matrix products is used by one source.
list(TRANSFORM MATMUL_PROVIDERS REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/nn/\\1.cc" OUTPUT_VARIABLE other_providers)
set(matmul_source ${PROJECT_SOURCE_DIR}/src/nn/${ALIBI_MATMUL}.cc)
list(REMOVE_ITEM other_providers ${matmul_source})
# An object of its own, so that a test can link another provider (tests/CMakeLists.txt).
set_source_files_properties(${matmul_source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
file(GLOB TOOLS_SOURCES CONFIGURE_DEPENDS src/bench/*.cc src/serve/*.cc src/serve/network/*.cc
     src/ranks/mpi/*.cc)
list(TRANSFORM OPERATOR_SOURCES REPLACE "^src/" "${PROJECT_SOURCE_DIR}/src/")
list(APPEND OPERATOR_SOURCES ${CUDA_SOURCES} ${CUDA_STUBS})
list(REMOVE_DUPLICATES OPERATOR_SOURCES)
file(GLOB_RECURSE LIBRARY_SOURCES CONFIGURE_DEPENDS src/*.cc)
list(REMOVE_ITEM LIBRARY_SOURCES ${OPERATOR_SOURCES} ${TOOLS_SOURCES} ${other_providers})
list(FILTER LIBRARY_SOURCES EXCLUDE REGEX "/src/core/(system|processor)_[a-z0-9]+\\.cc$")
if(ALIBI_X86)
  list(REMOVE_ITEM OPERATOR_SOURCES ${X86_STUBS})
else()
  list(REMOVE_ITEM OPERATOR_SOURCES ${X86_SOURCES})
endif()
# Sources that need MPI, and a stub for a build without it.
if(ALIBI_MPI)
  list(FILTER TOOLS_SOURCES EXCLUDE REGEX "/ranks/mpi/none\\.cc$")
else()
  list(FILTER TOOLS_SOURCES EXCLUDE REGEX "/ranks/mpi/(watchdog|world)\\.cc$")
endif()
# Sources that need Boost.Beast, and a stub for a build without the server.
if(ALIBI_SERVER)
  list(FILTER TOOLS_SOURCES EXCLUDE REGEX "/serve/network/none\\.cc$")
else()
  list(FILTER TOOLS_SOURCES EXCLUDE REGEX "/serve/network/(connection|exchange|log_writer|server)\\.cc$")
endif()
# The list of the position methods (src/model/position.h): src/model/positions/alibi.cc defines alibi(), and so on.
file(GLOB position_methods CONFIGURE_DEPENDS src/model/positions/*.cc)
foreach(method IN LISTS position_methods)
  get_filename_component(method ${method} NAME_WE)
  string(APPEND ALIBI_POSITION_DECLARATIONS "PositionMethod ${method}();\n")
  string(APPEND ALIBI_POSITION_CALLS "positions::${method}(), ")
endforeach()
configure_file(src/model/positions/methods.cc.in ${PROJECT_BINARY_DIR}/model/methods.cc @ONLY)
set_source_files_properties(${PROJECT_BINARY_DIR}/model/methods.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
list(APPEND LIBRARY_SOURCES ${PROJECT_BINARY_DIR}/model/methods.cc)
# The pages of the server and of the report, each as the string that page() of its namespace returns.
function(add_page folder sources)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/${folder}/page.html)
  file(READ src/${folder}/page.html ALIBI_PAGE)
  set(ALIBI_FOLDER ${folder})
  set(generated ${PROJECT_BINARY_DIR}/${folder}/page.cc)
  configure_file(cmake/page.cc.in ${generated} @ONLY)
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${sources} ${${sources}} ${generated} PARENT_SCOPE)
endfunction()
add_page(serve TOOLS_SOURCES)
add_page(report LIBRARY_SOURCES)
if(ALIBI_CUDA)
  list(REMOVE_ITEM OPERATOR_SOURCES ${CUDA_STUBS})
else()
  list(REMOVE_ITEM OPERATOR_SOURCES ${CUDA_SOURCES})
endif()

function(add_alibi_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  # Highway targets compiled: EMU128 (the scalar path), AVX2, AVX3; NEON on ARM64. See src/core/isa.h.
  target_compile_definitions(${name} PRIVATE "${HIGHWAY_DEFINITIONS}")
  target_link_libraries(${name} PRIVATE alibi_options)
  if(ALIBI_EMULATE_AMX)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # attention/amx/emulated.h
  endif()
  # Static and shared libraries consist of the same objects. A shared library exports only symbols marked by ALIBI_API.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON)
  compile_folders_together(${name})
endfunction()

add_alibi_objects(alibi_operator_objects ${OPERATOR_SOURCES})
target_link_libraries(alibi_operator_objects PRIVATE ${operator_dependencies})

set(operator_objects $<TARGET_OBJECTS:alibi_operator_objects>)
if(ALIBI_CUDA)
  # Kernels use neither fmt nor Highway. They take plain structs and return a cudaError_t.
  add_library(alibi_cuda_objects OBJECT ${CUDA_KERNELS})
  target_include_directories(alibi_cuda_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(alibi_cuda_objects PRIVATE -Xcompiler=-Wall,-Wextra
                         $<$<BOOL:${ALIBI_WARNINGS_AS_ERRORS}>:-Werror=all-warnings>)
  set_target_properties(alibi_cuda_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_VISIBILITY_PRESET hidden)
  list(APPEND operator_objects $<TARGET_OBJECTS:alibi_cuda_objects>)
endif()

function(finish_alibi_library name)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:alibi_options> ${ARGN})
endfunction()

add_library(alibi_attention ${operator_objects})
finish_alibi_library(alibi_attention ${operator_dependencies})
set(alibi_libraries alibi_attention)

if(ALIBI_BUILD_MODELS)
  foreach(group LIBRARY TOOLS)
    string(TOLOWER alibi_${group}_objects objects)
    add_alibi_objects(${objects} ${${group}_SOURCES})
    target_compile_options(${objects} PRIVATE ${ALIBI_LIBRARY_OPTIONS})
    target_link_libraries(${objects} PRIVATE ${library_dependencies} nlohmann_json::nlohmann_json)
    target_include_directories(${objects} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR} ${BOOST_MATH_INCLUDE_DIR})
    if(ALIBI_SERVER)
      target_include_directories(${objects} SYSTEM PRIVATE ${BOOST_BEAST_INCLUDE_DIR})
    endif()
  endforeach()

  set_target_properties(alibi_tools_objects PROPERTIES EXCLUDE_FROM_ALL ON)
  if(ALIBI_MPI)
    target_link_libraries(alibi_tools_objects PRIVATE MPI::MPI_CXX)
  endif()

  add_library(alibi_internal STATIC EXCLUDE_FROM_ALL ${operator_objects}
                                    $<TARGET_OBJECTS:alibi_library_objects> $<TARGET_OBJECTS:alibi_tools_objects>)
  finish_alibi_library(alibi_internal ${library_dependencies} $<$<BOOL:${ALIBI_MPI}>:MPI::MPI_CXX>)
  target_include_directories(alibi_internal PUBLIC ${PROJECT_SOURCE_DIR}/src)

  add_library(alibi ${operator_objects} $<TARGET_OBJECTS:alibi_library_objects>)
  finish_alibi_library(alibi ${library_dependencies})
  list(APPEND alibi_libraries alibi)
endif()

# The number in the SONAME. scripts/check/abi compares the library with the last release and says when it must be raised;
# the Debian package is then called after the new number (packaging/debian).
set(ALIBI_SOVERSION 0)
foreach(library IN LISTS alibi_libraries)
  string(REPLACE alibi_ "" exported ${library})
  add_library(alibi::${exported} ALIAS ${library})
  # alibi contains all of alibi_attention. A program with both would have two thread pools, so CMake refuses it.
  set_target_properties(${library} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${ALIBI_SOVERSION}
                                              EXPORT_NAME ${exported} INTERFACE_ALIBI_LIBRARY ${library}
                                              COMPATIBLE_INTERFACE_STRING ALIBI_LIBRARY)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL SHARED_LIBRARY AND UNIX AND NOT APPLE)
    # With hidden visibility, instances of the standard library's templates would still be exported.
    set(symbols ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.txt)
    target_link_options(${library} PRIVATE LINKER:--version-script=${symbols} LINKER:--no-undefined)
    set_property(TARGET ${library} APPEND PROPERTY LINK_DEPENDS ${symbols})
  endif()
endforeach()
