# cpack (`make package`): a .deb and a .tar.gz of the installed files. There is a single package with shared libraries:
# it has only a few megabytes, and programs that build against it need no further packages.
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME alibi)
set(CPACK_PACKAGE_VENDOR "alibi developers")
set(CPACK_PACKAGE_CONTACT "alibi developers")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Transformers with attention with linear biases (ALiBi): the command alibi, the library for C++, and the operator\nalone for C and C++.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # Depends: the packages of the libraries that are linked
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
