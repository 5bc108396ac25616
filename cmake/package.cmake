# cpack (`make package`): a .tar.gz of the installed files. scripts/release/debian-packages makes the Debian packages.
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME alibi)
set(CPACK_PACKAGE_VENDOR "alibi developers")
set(CPACK_PACKAGE_CONTACT "alibi developers")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
include(CPack)
