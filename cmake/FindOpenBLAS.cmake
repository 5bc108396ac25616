# Debian has three builds of OpenBLAS in folders of their own: serial, with threads of its own, with OpenMP. They have the
# same interface. The serial one does not lock its buffers, so alibi makes one call of it at a time.
set(folders openblas-pthread openblas-serial openblas openblas-openmp)
find_path(OpenBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES ${folders})
find_library(OpenBLAS_LIBRARY openblas PATH_SUFFIXES ${folders})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)
mark_as_advanced(OpenBLAS_INCLUDE_DIR OpenBLAS_LIBRARY)
if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::openblas)
  add_library(OpenBLAS::openblas INTERFACE IMPORTED)
  set_target_properties(OpenBLAS::openblas PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${OpenBLAS_INCLUDE_DIR}"
                                                      INTERFACE_LINK_LIBRARIES "${OpenBLAS_LIBRARY}")
endif()
