"""Walks a Redfish service with DMTF's Redfish Service Validator and prints what it found, as one JSON object.

validate.py ADDRESS USER PASSWORD Session|Basic SCHEMAS LOG: the service's address, a login, how to use it, the folder of the schemas (CSDL)
and a file for the validator's own log. Nothing is fetched from elsewhere.
"""

import json
import logging
import sys

import redfish
from redfish_service_validator import logger, metadata
from redfish_service_validator.system_under_test import SystemUnderTest

address, user, password, login, schemas, log = sys.argv[1:]
logger.logger = redfish.redfish_logger(log, "%(levelname)s %(message)s", logging.INFO)
logger.log_print = lambda *_: None
metadata.parse_schema_files(schemas)
service = SystemUnderTest(address, user, password, 60, login, None, None, None, [], False)
service.validate(None, "/redfish/v1/", "/redfish/v1/")
service.logout()
failures = [
    {"resource": uri, "property": name, "message": result["Message"]}
    for uri, resource in service._resources.items()
    for name, result in resource["Results"].items()
    if result["Result"] == "FAIL"
]
print(json.dumps({"resources": len(service._resources), "passed": service.pass_count, "failures": failures}))
