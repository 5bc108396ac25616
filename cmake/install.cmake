# Installs the library, its headers and the command, so that other projects can
#   find_package(alibi) + target_link_libraries(x alibi::alibi), or pkg-config alibi.
include(CMakePackageConfigHelpers)

install(TARGETS alibi alibi_attention EXPORT alibi-targets)
install(DIRECTORY include/alibi DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET alibi_cli)
  install(TARGETS alibi_cli)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/alibi)
install(EXPORT alibi-targets NAMESPACE alibi:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/alibi-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/alibi-config.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/alibi-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake ${CMAKE_CURRENT_BINARY_DIR}/alibi-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/alibi-config-version.cmake
        DESTINATION ${package_dir})

# A static library brings no libraries of its own along; whoever links it must name them.
if(BUILD_SHARED_LIBS)
  set(pkgconfig_static_libs "")
else()
  set(pkgconfig_static_libs " -ldnnl -lhwy -lfmt -lsentencepiece_train -lsentencepiece -lstdc++ -lpthread")
endif()
file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/alibi.pc.in ${CMAKE_CURRENT_BINARY_DIR}/alibi.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/alibi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
