# Installs the libraries, their headers and the command, so that other projects can
#   find_package(alibi) + target_link_libraries(x alibi::alibi), or pkg-config alibi;
# the operator alone is find_package(alibi COMPONENTS attention) + alibi::attention, or pkg-config alibi-attention.
include(CMakePackageConfigHelpers)
include(${CMAKE_CURRENT_LIST_DIR}/pkgconfig.cmake)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/alibi)
foreach(library IN LISTS alibi_libraries)
  install(TARGETS ${library} EXPORT ${library}-targets)
  install(EXPORT ${library}-targets NAMESPACE alibi:: DESTINATION ${package_dir})
endforeach()
install(DIRECTORY include/alibi DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET alibi_cli)
  install(TARGETS alibi_cli)
  set(shell_files ${CMAKE_CURRENT_BINARY_DIR}/cli/shell)
  install(DIRECTORY ${shell_files}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  install(FILES ${shell_files}/alibi DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${shell_files}/alibi.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  # Debian's zsh reads completions of packages from another folder.
  set(zsh_folder site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL /usr AND EXISTS /etc/debian_version)
    set(zsh_folder vendor-completions)
  endif()
  install(FILES ${shell_files}/_alibi DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh_folder})
endif()

# What is installed has to be built before; tests and benchmarks do not (`make install`).
add_custom_target(alibi_to_install DEPENDS ${alibi_libraries})
if(TARGET alibi_cli)
  add_dependencies(alibi_to_install alibi_cli alibi_shell_files)
endif()

# C programs that link static libraries must link the C++ standard library by name.
set(cxx_library ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER cxx_library INCLUDE REGEX "^(std)?c\\+\\+$")

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/alibi-config.cmake.in alibi-config.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/alibi-config-version.cmake COMPATIBILITY ${compatibility})
install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindOniguruma.cmake ${CMAKE_CURRENT_LIST_DIR}/FindOpenBLAS.cmake ${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindUtf8proc.cmake ${CMAKE_CURRENT_LIST_DIR}/FindZstandard.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/alibi-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/alibi-config-version.cmake
        DESTINATION ${package_dir})

set(cuda_library "")
if(ALIBI_CUDA)
  set(cuda_library -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt)
endif()
install_pkgconfig_file(alibi-attention alibi_attention "Attention with linear biases; C and C++"
                       libhwy:hwy fmt:fmt ${cuda_library} -pthread)
if(ALIBI_BUILD_MODELS)
  install_pkgconfig_file(alibi alibi "${PROJECT_DESCRIPTION}"
                         libhwy:hwy fmt:fmt ${MATMUL_PKGCONFIG} sentencepiece_train:sentencepiece_train
                         sentencepiece:sentencepiece oniguruma:onig libutf8proc:utf8proc zlib:z libzstd:zstd
                         ${cuda_library} -pthread -lc)  # -lc: see FindOniguruma.cmake
endif()
